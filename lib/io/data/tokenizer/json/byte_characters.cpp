#include "io/data/tokenizer/json/byte_characters.h"

#include <array>

#include "io/text/utf8.h"

namespace lyceum {

char32_t byte_character(unsigned char byte) {
  static const std::array<char32_t, 256> characters = [] {
    std::array<char32_t, 256> all{};
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool shown = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      all[b] = shown ? b : next++;
    }
    return all;
  }();
  return characters[byte];
}

std::string byte_characters(std::string_view text) {
  std::string out;
  for (const char c : text) append_utf8(out, byte_character(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace lyceum
