#include "io/text/word_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {
namespace {

TEST(WordCache, RemembersWordsWhileItGrowsAndForgetsThemWhenFull) {
  WordCache cache;
  int encoded = 0;
  const auto encode = [&](std::string_view word, std::vector<std::int32_t>& tokens) {
    ++encoded;
    tokens.push_back(std::stoi(std::string(word)));
  };
  const auto expect = [&](std::int32_t first, std::int32_t count) {
    for (std::int32_t number = first; number < first + count; ++number) {
      std::vector<std::int32_t> tokens;
      cache.append(std::to_string(number), tokens, encode);
      ASSERT_EQ(tokens, std::vector<std::int32_t>{number});
    }
  };
  constexpr int most_words = 1 << 17;
  for (int round = 0; round < 2; ++round) expect(0, most_words);
  EXPECT_EQ(encoded, most_words);
  expect(most_words, 100);
  expect(0, 10);
  EXPECT_EQ(encoded, most_words + 110);
  expect(most_words, 100);
  EXPECT_EQ(encoded, most_words + 110);
}

}  // namespace
}  // namespace lyceum
