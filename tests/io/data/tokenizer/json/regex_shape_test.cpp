#include "io/data/tokenizer/json/regex_shape.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace lyceum {
namespace {

/// Returns w if a match may extend over words, l over lines, e if it may be empty.
std::string shape(const std::string& pattern) {
  const RegexShape shape = shape_of(pattern);
  return std::string(shape.spans.words ? "w" : "") + (shape.spans.lines ? "l" : "") + (shape.may_be_empty ? "e" : "");
}

TEST(RegexShape, MatchesOfPublishedTokenizersEndAtWordsAndLines) {
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)", tail = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])", lower = R"([\p{Ll}\p{Lo}&&[^\p{Han}]])";
  for (
      const std::string& pattern :
      {std::string(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
       head + R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" + tail,
       head + R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" + tail,
       R"([^\r\n\p{L}\p{N}]?)" + upper + "*" + lower + R"(+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + tail,
       R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" + upper + "+" + lower + R"(*(?i:'s|'t)?| ?[^\s\p{L}\p{N}]+[\r\n]*)" + tail,
       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" +
           tail,
       head + R"(\d{1,3}(?=(?:\d{3})*\b)| ?[^\s\p{L}\p{N}]+[\r\n]*)" + tail, std::string(R"((?:\r?\n)+(?!\r?\n))"),
       std::string(R"( ?[^(\s|[.,!?…。，、।۔،])]+)"), std::string("[0-9][0-9][0-9]")}) {
    EXPECT_EQ(shape(pattern), "") << pattern;
  }
  EXPECT_EQ(shape(R"(\s?[A-Za-zµÀ-Ö]+)"), "l");
}

TEST(RegexShape, FollowsPartsOfExpressions) {
  for (const auto& [pattern, expected] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", "e"},
                                                                  {"a b", "w"},
                                                                  {"\\Aa", ""},
                                                                  {"^|b", "e"},
                                                                  {"a?", "e"},
                                                                  {"a+?", ""},
                                                                  {"a{0,2}", "e"},
                                                                  {"a{2}?", "e"},
                                                                  {"a{,}", ""},
                                                                  {"x*", "e"},
                                                                  {".", ""},
                                                                  {"..", "wl"},
                                                                  {".+", "wl"},
                                                                  {"[^\"]*", "wle"},
                                                                  {"(?:a|\\s)+", "wl"},
                                                                  {"(a)(?:)( )", "w"},
                                                                  {"a(?=b c)", "w"},
                                                                  {"a(?= )", ""},
                                                                  {"a(?<! )x* ", "w"},
                                                                  {"\\n\\p{L}", "l"},
                                                                  {"a▁", ""},
                                                                  {"a\\x20", "w"},
                                                                  {"a\\u0020", "w"},
                                                                  {"[[:alpha:][:space:]]{2,}", "wl"},
                                                                  {"\\w(?i)x|  |b", "w"},
                                                                  {"a(?i)| b", "w"},
                                                                  {"(?<n>a) ", "w"},
                                                                  {"(a)\\1", "wle"},
                                                                  {"(?i)\u017f ", "w"},
                                                                  {"a(?# x) ", "w"},
                                                                  {"[]a ]x ", "w"},
                                                                  {"a|\\ ", ""},
                                                                  {"(?<=a) b", ""},
                                                                  {"\\R/", ""}}) {
    EXPECT_EQ(shape(pattern), expected) << pattern;
  }
}

TEST(RegexShape, OtherFormsOfSpacesCountOnlyOnRequest) {
  EXPECT_FALSE(shape_of("Ċa|aĠ").spans.words);
  EXPECT_TRUE(shape_of("Ċa|aĠ", all_space_forms()).spans.words);
  EXPECT_TRUE(shape_of("Ċa|aĠ", all_space_forms()).spans.lines);
}

TEST(RegexShape, PlacesOfATextAreFoundInTheFormsNamed) {
  const SpaceForms& all = all_space_forms();
  EXPECT_TRUE(spans_of("New York", all).words);
  EXPECT_TRUE(spans_of("NewĠYork", all).words);
  EXPECT_TRUE(spans_of("é a▁b", all).words);
  EXPECT_TRUE(spans_of("Ċ}", all).lines);
  EXPECT_TRUE(spans_of(";\n}", all).lines);
  EXPECT_FALSE(spans_of("; \n\nĊ /", all).words);
  EXPECT_FALSE(spans_of("; \n\nĊ\n/", all).lines);
  EXPECT_TRUE(spans_of("New York", {}).words);
  EXPECT_FALSE(spans_of("New▁York", {}).words);
}

}  // namespace
}  // namespace lyceum
