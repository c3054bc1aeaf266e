#pragma once

#include <cstddef>
#include <string_view>

namespace lyceum {

/// The end of the word that begins at text[begin], begin < text.size(). A word is spaces followed by a run of letters,
/// digits, `_` and bytes beyond ASCII, or by a run of other visible characters, or by nothing; or a run of newlines; or
/// one of tabs. Whether two neighbouring bytes belong together depends on these two alone, so every piece of a
/// tokenizer that was trained on words is within one word of any text.
std::size_t end_of_word(std::string_view text, std::size_t begin);

}  // namespace lyceum
