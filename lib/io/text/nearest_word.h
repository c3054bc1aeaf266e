#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// Returns the number of insertions, deletions and replacements of bytes that turn `a` into `b` (Levenshtein distance).
/// If it exceeds `most`, returns some number above `most`, which is faster.
std::size_t edit_distance(std::string_view a, std::string_view b,
                          std::size_t most = std::numeric_limits<std::size_t>::max());

/// Returns the one of `words` that is nearest to a misspelt one. Returns "" if the distance exceeds both 2 and a third
/// of the word's length, or if the misspelt word is longer than 64 bytes.
std::string nearest_word(std::string_view misspelt, const std::vector<std::string>& words);

}  // namespace lyceum
