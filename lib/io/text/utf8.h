#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace lyceum {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // U+FEFF, which editors put before a text

/// True if the first bytes of a file, up to the end of a character, are UTF-8 text: not empty, and without NUL.
bool looks_like_text(std::string_view beginning);

/// Returns how many bytes at the end of a text begin a UTF-8 character that goes on behind it: 0 to 3.
std::size_t cut_character_bytes(std::string_view text);

/// Returns how many bytes of a text are not part of a valid UTF-8 character.
std::size_t invalid_utf8_bytes(std::string_view text);

/// A text as messages show it: whole when it has at most `most` bytes, else its first ones and how many there are.
std::string excerpt(std::string_view text, std::size_t most = 80);

}  // namespace lyceum
