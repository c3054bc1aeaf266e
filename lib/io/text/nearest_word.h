#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// Insertions, deletions and replacements that make `a` into `b`; where these are more than `most`, some number above
/// it, found sooner.
std::size_t edit_distance(std::string_view a, std::string_view b,
                          std::size_t most = std::numeric_limits<std::size_t>::max());

/// Which of `words` is nearest to a misspelt one: empty when more than a third of it, and more than two letters,
/// differ.
std::string nearest_word(std::string_view misspelt, const std::vector<std::string>& words);

}  // namespace lyceum
