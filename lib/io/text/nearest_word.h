#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// Insertions, deletions and replacements that make `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Which of `words` is nearest to a misspelt one: empty when more than a third of it, and more than two letters,
/// differ.
std::string nearest_word(std::string_view misspelt, const std::vector<std::string>& words);

}  // namespace lyceum
