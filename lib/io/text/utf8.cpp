#include "io/text/utf8.h"

#include <algorithm>

namespace lyceum {

bool looks_like_text(std::string_view beginning) {
  return !beginning.empty() && beginning.find('\0') == std::string_view::npos && is_utf8(beginning);
}

std::size_t cut_character_bytes(std::string_view text) {
  constexpr std::size_t longest_cut = 3;
  for (std::size_t bytes = 1; bytes <= std::min(longest_cut, text.size()); ++bytes) {
    const auto first = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((first & 0xC0u) == 0x80u) continue;  // a continuation byte
    std::size_t whole = 1;
    if (first >= 0xC0) whole = 2;
    if (first >= 0xE0) whole = 3;
    if (first >= 0xF0) whole = 4;
    return whole > bytes ? bytes : 0;
  }
  return 0;
}

std::size_t invalid_utf8_bytes(std::string_view text) {
  std::size_t invalid = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    invalid += length == 0 ? 1 : 0;
    at += length == 0 ? 1 : length;
  }
  return invalid;
}

std::string excerpt(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;  // not within a character
  return std::string(text.substr(0, end)) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace lyceum
