#include "io/data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "core/error.h"
#include "io/data/tokenizer/unicode_tables.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

using unicode_tables::CharacterRange;

/// Returns the range that contains a character, or nullptr.
template <class Range>
const Range* find_range(std::span<const Range> ranges, char32_t c) {
  const auto range = std::ranges::lower_bound(ranges, c, {}, &Range::last);
  return range != ranges.end() && range->first <= c ? &*range : nullptr;
}

/// Returns true if a character belongs to a class, which utf8proc decides unless a table contains the character.
bool is_in_class(std::span<const CharacterRange> included, std::span<const CharacterRange> excluded, char32_t c,
                 bool by_utf8proc) {
  if (c < 0x80) return by_utf8proc;  // the tables have no ASCII
  return by_utf8proc ? find_range(excluded, c) == nullptr : find_range(included, c) != nullptr;
}

bool is_inert(char32_t c) { return find_range(std::span<const CharacterRange>(unicode_tables::inert), c) != nullptr; }

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

utf8proc_option_t options_of(NormalForm form) {
  const unsigned composes = form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  const unsigned compatible = form == NormalForm::nfkc || form == NormalForm::nfkd ? UTF8PROC_COMPAT : 0;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | composes | compatible);
}

/// Appends the normal form that utf8proc makes of a text without inert characters.
void append_normalized_part(std::string& out, std::string_view text, NormalForm form) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &made, options_of(form));
  require(bytes >= 0, "utf8proc cannot normalise {} bytes of text: {}", text.size(), utf8proc_errmsg(bytes));
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(made);
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

/// Appends the normal form of a text. Inert characters remain, and nothing moves across them or is composed with them.
void append_normalized(std::string& out, std::string_view text, NormalForm form) {
  std::size_t begin = 0;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + utf8_length(text, at);
    if (!is_inert(character_at(text, at))) continue;
    if (begin < at) append_normalized_part(out, text.substr(begin, at - begin), form);
    out.append(text.substr(at, end - at));
    begin = end;
  }
  if (begin < text.size()) append_normalized_part(out, text.substr(begin), form);
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

utf8proc_category_t category(char32_t character) { return utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

/// Returns the lower case of a character other than U+0130.
char32_t lowercase_of(char32_t c) {
  const auto* const range = find_range(std::span<const unicode_tables::LowerCases>(unicode_tables::lower_cases), c);
  if (range) return range->lower + (c - range->first);
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool is_word_in_utf8proc(char32_t c) {
  const auto kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  if (kind == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Letters in circles and squares: symbols that have the property Alphabetic.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  // ASCII is unchanged, except that the last ASCII character before others may be composed with them.
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t other = at;
    while (other < text.size() && is_ascii(text[other])) ++other;
    if (other == text.size()) {
      out.append(text.substr(at));
      break;
    }
    std::size_t end = other;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    const std::size_t begin = other > at ? other - 1 : other;
    out.append(text.substr(at, begin - at));
    append_normalized(out, text.substr(begin, end - begin), form);
    at = end;
  }
  return out;
}

std::string lowercase(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text, at)) {
    const char32_t character = character_at(text, at);
    if (character == 0x130) {  // the only character that becomes two
      lower += "i\xCC\x87";
    } else {
      append_utf8(lower, lowercase_of(character));
    }
  }
  return lower;
}

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  const bool number = kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
  return is_in_class(unicode_tables::numeric, unicode_tables::not_numeric, c, number);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
  const auto kind = category(c);
  return is_in_class(unicode_tables::punctuation, unicode_tables::not_punctuation, c,
                     kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO);
}

bool is_word(char32_t c) {
  return is_in_class(unicode_tables::word, unicode_tables::not_word, c, is_word_in_utf8proc(c));
}

}  // namespace lyceum
