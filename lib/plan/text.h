#pragma once

#include <string>

namespace lyceum {

/// "1.23 GB"; "-" of none.
std::string bytes_text(double bytes);

}  // namespace lyceum
