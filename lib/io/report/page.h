#pragma once

#include <string_view>

namespace lyceum {

/// The report's style sheet, without the colours of heat maps, and its script (values under the pointer).
std::string_view report_style();
std::string_view report_script();

}  // namespace lyceum
