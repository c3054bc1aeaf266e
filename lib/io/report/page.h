#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// One page around a body of HTML that is XML too: style sheet, colours of heat maps, script (values under the
/// pointer).
std::string html_page(const std::string& title, const std::string& body);

/// Names and values in columns; empty of none.
std::string fact_list(const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace lyceum
