#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace lyceum {

constexpr std::string_view byte_order_mark =
    "\xEF\xBB\xBF";  // U+FEFF; some editors write it at the beginning of a text

/// True if the first bytes of a file are UTF-8 text: not empty, valid, without NUL and without an incomplete character
/// at their end.
bool looks_like_text(std::string_view beginning);

/// Returns the number of bytes at the end of a text that are an incomplete UTF-8 character: 0 to 3.
std::size_t cut_character_bytes(std::string_view text);

/// Returns the number of bytes of a text that are not part of a valid UTF-8 character.
std::size_t invalid_utf8_bytes(std::string_view text);

/// Shortens a text for messages: returns it whole if it has at most `most` bytes, else its first `most` bytes, cut
/// between characters, followed by "… (1234 bytes)".
std::string excerpt(std::string_view text, std::size_t most = 80);

}  // namespace lyceum
