#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// Returns a complete HTML page with this body, which must be valid XML too. Adds the style sheet, the colours of heat
/// maps and the script that shows the values under the pointer. `title` is escaped, `body` is not.
std::string html_page(const std::string& title, const std::string& body);

/// Returns names and values in columns; empty if there are none.
std::string fact_list(const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace lyceum
