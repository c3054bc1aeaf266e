#include "io/words.h"

#include <array>
#include <cstdint>

namespace lyceum {

namespace {

enum class Kind : std::uint8_t { other, letter, space, newline, tab };

constexpr std::array<Kind, 256> kinds = [] {
  std::array<Kind, 256> table{};
  for (std::size_t c = 0; c < table.size(); ++c) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    table[c] = letter || c >= 0x80 ? Kind::letter : Kind::other;
  }
  table[' '] = Kind::space;
  table['\n'] = Kind::newline;
  table['\t'] = Kind::tab;
  return table;
}();

Kind kind_of(char c) { return kinds[static_cast<unsigned char>(c)]; }

}  // namespace

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  Kind kind = kind_of(text[begin]);
  std::size_t at = begin + 1;
  while (at < text.size() && kind_of(text[at]) == kind) ++at;
  if (kind != Kind::space || at == text.size()) return at;
  kind = kind_of(text[at]);
  if (kind != Kind::letter && kind != Kind::other) return at;
  while (at < text.size() && kind_of(text[at]) == kind) ++at;
  return at;
}

}  // namespace lyceum
