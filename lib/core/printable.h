#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Returns foreign text (names, attributes of files, messages of libraries) so that showing it changes nothing but the
/// place it is shown at. Line breaks and tabs become blanks. Other control characters, line and paragraph separators,
/// and the controls that reorder bidirectional text are written as escapes (\x1b, \u007f, \u202e), and so are bytes
/// that are not UTF-8 (\xe9). The result is UTF-8, and printable() returns it unchanged. Valid JSON stays valid and
/// keeps its meaning.
std::string printable(std::string_view text);

/// Does as printable(), but line feeds and tabs stay: for a text of several lines.
std::string printable_lines(std::string_view text);

}  // namespace lyceum
