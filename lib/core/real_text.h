#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Returns a number, which may be infinite or NaN, in the format `{:format}`, for example ".4f" or ".3g". If `format`
/// is empty, returns the shortest text that reads back as the same number. Infinities are "inf" and "-inf". NaN is
/// always "nan": its sign bit, which processors set in the result of 0/0, is ignored.
std::string real_text(double value, std::string_view format = {});
std::string real_text(float value, std::string_view format = {});

}  // namespace lyceum
