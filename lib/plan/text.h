#pragma once

#include <string>

namespace lyceum {

/// Formats bytes as "1.23 GB"; "-" for zero.
std::string bytes_text(double bytes);

}  // namespace lyceum
