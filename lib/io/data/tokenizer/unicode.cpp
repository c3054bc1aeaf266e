#include "io/data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/error.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

utf8proc_option_t options_of(NormalForm form) {
  const unsigned composes = form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  const unsigned compatible = form == NormalForm::nfkc || form == NormalForm::nfkd ? UTF8PROC_COMPAT : 0;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | composes | compatible);
}

void append_normalized(std::string& out, std::string_view text, NormalForm form) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &made, options_of(form));
  require(bytes >= 0, "utf8proc cannot normalise {} bytes of text: {}", text.size(), utf8proc_errmsg(bytes));
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(made);
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

utf8proc_category_t category(char32_t character) { return utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

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
      append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
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
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t c) {
  const auto kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  if (kind == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Letters in circles and squares: symbols that have the property Alphabetic.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace lyceum
