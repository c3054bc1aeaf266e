#include "io/text/utf8.h"

namespace lyceum {

bool looks_like_text(std::string_view beginning) {
  constexpr std::size_t longest_cut = 3;
  if (beginning.empty() || beginning.find('\0') != std::string_view::npos) return false;
  std::size_t at = 0;
  while (at < beginning.size()) {
    const std::size_t length = utf8_length(beginning, at);
    if (length == 0) break;
    at += length;
  }
  // The end may cut a character, but something before it must be one: three stray bytes are no text.
  return at == beginning.size() || (at > 0 && beginning.size() - at <= longest_cut);
}

std::string excerpt(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;  // not within a character
  return std::string(text.substr(0, end)) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace lyceum
