#pragma once

#include <string>
#include <string_view>

/// Properties of Unicode characters, as defined by Rust's standard library and the crates `regex`, `unicode_categories`
/// and `unicode-normalization-alignments`, with which `tokenizers` 0.23 is implemented. They have the data of different
/// versions of Unicode: 17, 16, 8 and 9. All texts must be valid UTF-8.
namespace lyceum {

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// Returns the normal form of a text. [Unicode Standard Annex 15]
std::string normalized(std::string_view text, NormalForm form);

/// Converts a text to lower case, each character independently: a sigma at the end of a word is not special.
std::string lowercase(std::string_view text);

bool is_whitespace(char32_t character);   // the property White_Space
bool is_numeric(char32_t character);      // general categories Nd, Nl, No
bool is_punctuation(char32_t character);  // general categories P*, and all punctuation of ASCII
bool is_word(char32_t character);         // \w: letters, marks, decimal digits, connectors, joiners

}  // namespace lyceum
