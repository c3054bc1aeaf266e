#pragma once

#include <string>
#include <string_view>

/// Properties of Unicode's characters, as Rust's standard library and its crate `regex` define them: `tokenizers`,
/// which wrote the files that we read, is written with those. All texts here are valid UTF-8.
namespace lyceum {

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// [Unicode Standard Annex 15]
std::string normalized(std::string_view text, NormalForm form);

/// Character by character, so a sigma at the end of a word is as any other.
std::string lowercase(std::string_view text);

bool is_whitespace(char32_t character);   // White_Space
bool is_numeric(char32_t character);      // Nd, Nl, No
bool is_punctuation(char32_t character);  // P*, and what ASCII calls so
bool is_word(char32_t character);         // \w: letters, marks, decimal digits, connectors, joiners

}  // namespace lyceum
