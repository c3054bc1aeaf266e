#pragma once

#include <string>
#include <string_view>

/// Properties of characters in regular expressions. `tokenizers` 0.23 has those of Unicode 16; Oniguruma in Debian 12
/// has those of Unicode 14. Names of properties are in lower case without separators, general categories are "L", "Lu",
/// ….
namespace lyceum {

/// Returns the short name of a general category; "" if `name` is another property.
std::string category_of(const std::string& name);

/// Returns the characters that Unicode 15 and 16 added to \w ("w"), to \d ("d") or to a general category, as contents
/// of a character class. A category of one letter includes all its subcategories: L is Lu, Ll, ….
std::string new_characters_of(std::string_view name);

/// Returns the characters that were added to another property, as contents of a class; "" if there are none.
std::string new_characters_of_property(std::string_view name);

/// Returns true if the characters of a property depend on the version of Unicode and new_characters_of_property() does
/// not provide the difference.
bool differs_between_versions(std::string_view name);

}  // namespace lyceum
