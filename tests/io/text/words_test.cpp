#include "io/text/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace lyceum {
namespace {

using ::testing::ElementsAre;

TEST(Words, EndWhereTheirKindChanges) {
  const auto words_of = [](std::string_view text) {
    std::vector<std::string> words;
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = end_of_word(text, at);
      words.emplace_back(text.substr(at, end - at));
    }
    return words;
  };
  EXPECT_THAT(words_of("  foo_1(x);"), ElementsAre("  foo_1", "(", "x", ");"));
  EXPECT_THAT(words_of("a == b"), ElementsAre("a", " ==", " b"));
  EXPECT_THAT(words_of("\t\t  x \n\n  \r\ny  "), ElementsAre("\t\t", "  x", " ", "\n\n", "  \r", "\n", "y", "  "));
  EXPECT_THAT(words_of("größe ü"), ElementsAre("größe", " ü"));
}

}  // namespace
}  // namespace lyceum
