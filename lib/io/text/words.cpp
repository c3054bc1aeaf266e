#include "io/text/words.h"

#include <array>
#include <cstdint>

namespace lyceum {

namespace {

enum class CharacterKind : std::uint8_t { other, letter, space, newline, tab };

constexpr std::array<CharacterKind, 256> character_kinds = [] {
  std::array<CharacterKind, 256> table{};
  for (std::size_t c = 0; c < table.size(); ++c) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    table[c] = letter || c >= 0x80 ? CharacterKind::letter : CharacterKind::other;
  }
  table[' '] = CharacterKind::space;
  table['\n'] = CharacterKind::newline;
  table['\t'] = CharacterKind::tab;
  return table;
}();

CharacterKind character_kind(char c) { return character_kinds[static_cast<unsigned char>(c)]; }

}  // namespace

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  CharacterKind kind = character_kind(text[begin]);
  std::size_t at = begin + 1;
  while (at < text.size() && character_kind(text[at]) == kind) ++at;
  if (kind != CharacterKind::space || at == text.size()) return at;
  kind = character_kind(text[at]);
  if (kind != CharacterKind::letter && kind != CharacterKind::other) return at;
  while (at < text.size() && character_kind(text[at]) == kind) ++at;
  return at;
}

}  // namespace lyceum
