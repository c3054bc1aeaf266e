#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace lyceum {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // U+FEFF, which editors put before a text

/// Whether the first bytes of a file could be the beginning of a UTF-8 text: not empty, no NUL, only whole characters,
/// but for the last one, which may be cut.
bool looks_like_text(std::string_view beginning);

/// A text as messages show it: whole when it has at most `most` bytes, else its first ones and how many there are.
std::string excerpt(std::string_view text, std::size_t most = 80);

}  // namespace lyceum
