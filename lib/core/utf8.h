#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lyceum {

/// Returns the length in bytes (1 to 4) of the UTF-8 character that begins at text[at]. Returns 0 if none does: for a
/// stray or missing continuation byte, an overlong form, a surrogate, or a value beyond U+10FFFF. [RFC 3629]
std::size_t utf8_length(std::string_view text, std::size_t at);

/// Returns the character at text[at], where a valid one must begin (utf8_length() > 0).
char32_t character_at(std::string_view text, std::size_t at);
/// Appends a character to `text` in UTF-8.
void append_utf8(std::string& text, char32_t character);

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

/// True if all of `text` is valid UTF-8.
bool is_utf8(std::string_view text);
/// Replaces invalid UTF-8 by U+FFFD, once for each longest incomplete character and once for each other invalid byte,
/// as Python's bytes.decode(errors="replace") does. [Unicode 15, section 3.9, "U+FFFD Substitution of Maximal
/// Subparts"]
std::string replace_invalid_utf8(std::string_view text);

}  // namespace lyceum
