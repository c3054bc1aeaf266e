#pragma once

#include <cstddef>
#include <string_view>

namespace lyceum {

/// Returns the offset of the end of the word that begins at text[begin]. Precondition: begin < text.size(). A word is
/// one of
///
/// - letters, digits, `_` and non-ASCII bytes, after any number of spaces,
/// - other visible characters, after any number of spaces,
/// - spaces that neither of these follows,
/// - newlines,
/// - tabs.
///
/// The two bytes next to a boundary determine it. Therefore no token that was learned from single words extends over
/// the end of a word in any text.
std::size_t end_of_word(std::string_view text, std::size_t begin);

}  // namespace lyceum
