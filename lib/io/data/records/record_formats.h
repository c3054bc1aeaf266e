#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Says what the first bytes of a file make it that is neither text nor compressed with gzip or zstd, and what to do
/// about it: "Parquet, …". Empty if they are of no format that is known here.
std::string foreign_format(std::string_view beginning);

}  // namespace lyceum
