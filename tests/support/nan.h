#pragma once

#include <limits>

namespace lyceum {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace lyceum
