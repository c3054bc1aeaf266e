#include "core/utf8.h"

namespace lyceum {

namespace {

/// The properties of a character that its first byte determines: its length in bytes (0 if no character begins with
/// that byte) and the bounds of its second byte. [RFC 3629, section 4]
struct Lead {
  std::size_t length;
  unsigned least = 0x80, most = 0xBF;
};
Lead lead_of(unsigned first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {0};
  if (first < 0xE0) return {2};
  if (first < 0xF0) return {3, first == 0xE0 ? 0xA0u : 0x80u, first == 0xED ? 0x9Fu : 0xBFu};
  if (first < 0xF5) return {4, first == 0xF0 ? 0x90u : 0x80u, first == 0xF4 ? 0x8Fu : 0xBFu};
  return {0};
}

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

/// Returns how many bytes from text[at] on can begin a character of kind `lead`: `lead.length` if the character is
/// complete.
std::size_t well_formed_beginning(std::string_view text, std::size_t at, const Lead& lead) {
  std::size_t bytes = 1;
  for (; bytes < lead.length && at + bytes < text.size(); ++bytes) {
    const unsigned byte = byte_at(text, at + bytes);
    if (byte < (bytes == 1 ? lead.least : 0x80u) || byte > (bytes == 1 ? lead.most : 0xBFu)) break;
  }
  return bytes;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const Lead lead = lead_of(byte_at(text, at));
  return lead.length > 0 && well_formed_beginning(text, at, lead) == lead.length ? lead.length : 0;
}

char32_t character_at(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  const std::size_t length = lead_of(first).length;
  if (length <= 1) return first;
  char32_t character = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) character = character << 6 | (byte_at(text, at + i) & 0x3Fu);
  return character;
}

void append_utf8(std::string& text, char32_t character) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xC0 | character >> 6);
    add(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    add(0xE0 | character >> 12);
    add(0x80 | (character >> 6 & 0x3F));
    add(0x80 | (character & 0x3F));
  } else {
    add(0xF0 | character >> 18);
    add(0x80 | (character >> 12 & 0x3F));
    add(0x80 | (character >> 6 & 0x3F));
    add(0x80 | (character & 0x3F));
  }
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = byte_at(text, at) < 0x80 ? 1 : utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length > 0) {
      valid.append(text.substr(at, length));
      at += length;
    } else {
      valid.append(replacement_character);
      at += well_formed_beginning(text, at, lead_of(byte_at(text, at)));
    }
  }
  return valid;
}

}  // namespace lyceum
