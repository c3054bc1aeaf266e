#include "io/data/tokenizer/unicode.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/utf8.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using nlohmann::json;

template <class Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text, at)) visit(character_at(text, at));
}

template <class Predicate>
std::string selected(std::string_view text, const Predicate& predicate) {
  std::string all;
  for_each_character(text, [&](char32_t c) {
    if (predicate(c)) append_utf8(all, c);
  });
  return all;
}

/// Compares the properties and normal forms of all characters with those in the package `tokenizers`.
TEST(Unicode, CharactersAreAsInThePackageTokenizers) {
  const std::filesystem::path source = LYCEUM_SOURCE_DIR, python = source / ".venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << python << " is missing: run scripts/install-deps.sh";
  const TemporaryDirectory directory;
  const std::string command = fmt::format("'{}' '{}' --characters '{}'", python.string(),
                                          (source / "tests/io/data/tokenizer/json/tokenizer_oracle.py").string(),
                                          (directory.path() / "characters").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (const json& block : json::parse(read_whole_file(directory.path() / "characters"))) {
    const auto text = block.at("text").get<std::string>();
    std::string marked;
    for_each_character(text, [&](char32_t c) {
      for (const char32_t each : {c, U'a', U'\u0345', c, U'\u0334', U'a'}) append_utf8(marked, each);
    });
    const auto compare = [&](const char* name, const std::string& result) {
      EXPECT_EQ(sha256(result), block.at("digests").at(name).get<std::string>())
          << name << fmt::format(" of characters from U+{:04X}", static_cast<unsigned>(character_at(text, 0)));
    };
    compare("numeric", selected(text, is_numeric));
    compare("punctuation", selected(text, is_punctuation));
    compare("symbol", selected(text, [](char32_t c) { return !is_word(c) && !is_whitespace(c); }));
    compare("not space", selected(text, [](char32_t c) { return !is_whitespace(c); }));
    compare("lower", lowercase(text));
    compare("NFC", normalized(marked, NormalForm::nfc));
    compare("NFD", normalized(marked, NormalForm::nfd));
    compare("NFKC", normalized(marked, NormalForm::nfkc));
    compare("NFKD", normalized(marked, NormalForm::nfkd));
  }
}

}  // namespace
}  // namespace lyceum
