#include "io/data/tokenizer/json/regex.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using nlohmann::json;

/// Compares the characters of each class, over all of Unicode that is not uniform, with those in the package
/// `tokenizers`.
TEST(Regex, ClassesAreThoseOfThePackageTokenizers) {
  const std::filesystem::path source = LYCEUM_SOURCE_DIR, python = source / ".venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << python << " is missing: run scripts/install-deps.sh";
  const TemporaryDirectory directory;
  const std::string command = fmt::format("'{}' '{}' --classes '{}'", python.string(),
                                          (source / "tests/io/data/tokenizer/json/tokenizer_oracle.py").string(),
                                          (directory.path() / "classes").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const json classes = json::parse(read_whole_file(directory.path() / "classes"));
  std::string all;
  for (const auto& [first, end] : classes.at("ranges").get<std::vector<std::pair<char32_t, char32_t>>>()) {
    for (char32_t c = first; c < end; ++c) {
      if (c < 0xD800 || c >= 0xE000) append_utf8(all, c);
    }
  }
  for (const auto& [pattern, digest] : classes.at("left").items()) {
    std::vector<TextRange> matches;
    Regex(pattern).find_all(all, matches);
    std::string left;
    std::size_t at = 0;
    for (const TextRange& match : matches) {
      left.append(all, at, match.begin - at);
      at = match.end;
    }
    left.append(all, at);
    EXPECT_EQ(sha256(left), digest.get<std::string>()) << pattern;
  }
}

TEST(Regex, PropertiesThatDependOnTheVersionOfUnicodeAreRefused) {
  for (const std::string pattern :
       {R"(\p{Ideographic})", R"([^\P{ID_Start}])", R"(\p{^Unknown})", R"((?i)[[:upper:]])", R"((?i:[\p{Ll}]))"}) {
    expect_bad_input([&] { Regex{pattern}; }, "depends on the version of Unicode");
  }
  EXPECT_NO_THROW(Regex(R"((?i)\p{Lu}|[\p{L}])"));
}

TEST(Regex, StepsAreBoundedAndTheExpressionIsNamed) {
  const std::string as(20'000, 'a');
  for (const std::string pattern : {"(?=a*z)a", "(.*)\\1$", "a*z|a", "a*+z|a", "(?>a*)z|a", "(?!a*b)a", "(a*)*z|a",
                                    "(?:a|aa)+z|a", "a(?=.*z)", "(?=(a*)z)a"}) {
    std::vector<TextRange> matches;
    const std::string text = pattern == "a(?=.*z)" ? as + "z" : as + (pattern == "(?=a*z)a" ? "z" : "");
    expect_bad_input([&] { Regex(pattern).find_all(text, matches); },
                     "the regular expression " + pattern + " takes more than");
  }
}

TEST(Regex, SaneTextTakesFewSteps) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += std::string(3000, ' ') + "word" + std::string(2000, '\n') + std::string(500, '9');
  text += std::string(1'000'000, ' ') + std::string(1'000'000, 'x');
  for (
      const char* pattern :
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"}) {
    std::vector<TextRange> matches;
    Regex(pattern).find_all(text, matches);
    EXPECT_GT(matches.size(), 500);
  }
}

}  // namespace
}  // namespace lyceum
