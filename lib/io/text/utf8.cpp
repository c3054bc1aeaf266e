#include "io/text/utf8.h"

namespace lyceum {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return at < text.size() ? 1 : 0;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return continues(1) ? 2 : 0;
  if (first < 0xF0) {
    const unsigned least = first == 0xE0 ? 0xA0 : 0x80, most = first == 0xED ? 0x9F : 0xBF;
    return byte(1) >= least && byte(1) <= most && continues(2) ? 3 : 0;
  }
  if (first > 0xF4) return 0;
  const unsigned least = first == 0xF0 ? 0x90 : 0x80, most = first == 0xF4 ? 0x8F : 0xBF;
  return byte(1) >= least && byte(1) <= most && continues(2) && continues(3) ? 4 : 0;
}

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
