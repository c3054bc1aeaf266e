#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Returns a number that may not be finite as `{:format}` shows it (".4f", ".3g"; empty: the shortest text that reads
/// back to the same number). Infinities are "inf" and "-inf". NaN is "nan" whatever its sign bit, which processors set
/// in the result of 0/0.
std::string real_text(double value, std::string_view format = {});
std::string real_text(float value, std::string_view format = {});

}  // namespace lyceum
