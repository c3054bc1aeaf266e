#pragma once

#include <cstdint>
#include <string>

namespace lyceum {

/// "1.23 GB"; "-" of none.
std::string bytes_text(double bytes);
/// "1 rank", "3 micro-batches"
std::string count_text(std::int64_t count, const char* one);

}  // namespace lyceum
