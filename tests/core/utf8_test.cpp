#include "core/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lyceum {
namespace {

TEST(Utf8, LengthsOfEdgeCases) {  // RFC 3629, section 4
  const auto length = [](std::string_view text) { return utf8_length(text, 0); };
  EXPECT_EQ(length("a"), 1);
  EXPECT_EQ(length("\xC2\x80"), 2);
  EXPECT_EQ(length("\xE0\xA0\x80"), 3);
  EXPECT_EQ(length("\xED\x9F\xBF"), 3);
  EXPECT_EQ(length("\xEE\x80\x80"), 3);
  EXPECT_EQ(length("\xF0\x90\x80\x80"), 4);
  EXPECT_EQ(length("\xF4\x8F\xBF\xBF"), 4);
  for (const char* const wrong : {"", "\x80", "\xC1\xBF", "\xC2", "\xC2x", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x96",
                                  "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF0\x90\x80"}) {
    EXPECT_EQ(length(wrong), 0) << wrong;
  }
}

TEST(Utf8, InvalidBytesAreReplacedAsPythonDoes) {  // bytes.decode(errors="replace")
  const auto replaced = [](std::string_view text) { return replace_invalid_utf8(text); };
  EXPECT_EQ(replaced("gr\xC3\xB6\xC3\x9F"), "größ");
  EXPECT_EQ(replaced("\xE2\x96x"), "\uFFFDx");
  EXPECT_EQ(replaced("\xF0\x9F\x99"), "\uFFFD");
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xC0\xAF\xFF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, CharactersComeBack) {
  for (const char32_t c : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(utf8_length(text, 0), text.size());
    EXPECT_EQ(character_at(text, 0), c);
  }
}

}  // namespace
}  // namespace lyceum
