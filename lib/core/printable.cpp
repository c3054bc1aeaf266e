#include "core/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/utf8.h"

namespace lyceum {

namespace {

/// True for a character that acts on a terminal or on the order of the text around it instead of being shown.
bool is_control(char32_t character) {
  const auto in = [&](char32_t first, char32_t last) { return character >= first && character <= last; };
  return character < 0x20 || in(0x7F, 0x9F) || in(0x2028, 0x2029)  // C0, DEL and C1; line separators
         || in(0x202A, 0x202E) || in(0x2066, 0x2069);              // bidirectional controls [Unicode UAX 9]
}

std::string without_controls(std::string_view text, std::string_view kept) {
  const auto is_plain = [](char c) { return c >= ' ' && c < '\x7F'; };
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = utf8_length(text, at);
    if (length == 0) {
      length = 1;
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(text[at]));
      continue;
    }
    const char32_t character = character_at(text, at);
    if (!is_control(character) || (length == 1 && kept.find(text[at]) != kept.npos)) {
      shown += text.substr(at, length);
    } else if (character >= '\t' && character <= '\r') {
      shown += ' ';
    } else if (character < ' ') {  // valid JSON contains no such character
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned>(character));
    } else {
      fmt::format_to(std::back_inserter(shown), "\\u{:04x}", static_cast<unsigned>(character));
    }
  }
  return shown;
}

}  // namespace

std::string printable(std::string_view text) { return without_controls(text, ""); }

std::string printable_lines(std::string_view text) { return without_controls(text, "\n\t"); }

}  // namespace lyceum
