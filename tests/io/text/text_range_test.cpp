#include "io/text/text_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

namespace lyceum {
namespace {

/// Doubles every ASCII consonant.
std::string doubled(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool twice =
        std::isalpha(static_cast<unsigned char>(c)) != 0 && std::string_view("aeiou").find(c) == std::string_view::npos;
    out.append(twice ? 2 : 1, c);
  }
  return out;
}

TEST(TextRange, OffsetsAreMovedInOnePass) {
  std::string text;
  std::vector<std::size_t> offsets, expected;
  for (int i = 0; i < 1000; ++i) {
    text += "some words\n of a text";
    offsets.push_back(text.size());
    expected.push_back(doubled(text).size());
  }
  std::size_t changed = 0;
  const std::string after = change_and_move_offsets(text, offsets, [&](const std::string& part) {
    changed += part.size();
    return doubled(part);
  });
  EXPECT_EQ(after, doubled(text));
  EXPECT_EQ(offsets, expected);
  EXPECT_LT(changed, 4 * text.size());
}

}  // namespace
}  // namespace lyceum
