#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Returns text from outside the program (file names, attributes, messages of libraries) in a form that is safe to
/// print on a terminal. Line breaks and tabs become spaces. Other control characters, line and paragraph separators,
/// and the controls that reorder bidirectional text are written as escapes (\x1b, \u007f, \u202e), as are bytes that
/// are not UTF-8 (\xe9). The result is UTF-8, and printable() returns it unchanged. Valid JSON stays valid and keeps
/// its meaning.
std::string printable(std::string_view text);

/// Does the same as printable(), but keeps line feeds and tabs, for text of several lines.
std::string printable_lines(std::string_view text);

}  // namespace lyceum
