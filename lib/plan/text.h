#pragma once

#include <string>

namespace lyceum {

/// Formats bytes as "1.23 GB" with 1 GB = 10^9 bytes; "-" for zero.
std::string bytes_text(double bytes);

}  // namespace lyceum
