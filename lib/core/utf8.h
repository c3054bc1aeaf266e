#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lyceum {

/// Bytes of the UTF-8 character that begins at text[at] (1 to 4); 0 when none does: a stray or missing continuation, an
/// overlong form, a surrogate, a value beyond U+10FFFF. [RFC 3629]
std::size_t utf8_length(std::string_view text, std::size_t at);

/// The character at text[at], where one begins (utf8_length).
char32_t character_at(std::string_view text, std::size_t at);
/// Appends the UTF-8 of a character.
void append_utf8(std::string& text, char32_t character);

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

bool is_utf8(std::string_view text);
/// The text with U+FFFD for what is no UTF-8: one for each longest beginning of a character, else one a byte. The same
/// as Python's bytes.decode(errors="replace"). [Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts"]
std::string replace_invalid_utf8(std::string_view text);

}  // namespace lyceum
