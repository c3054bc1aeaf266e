#include "io/data/tokenizer/json/tokenizer_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Compares the ids and decoded texts with those that tokenizer_oracle.py computes with `tokenizers`.
TEST(TokenizerJson, EncodesAndDecodesAsThePackageTokenizersDoes) {
  const std::filesystem::path source = LYCEUM_SOURCE_DIR, python = source / ".venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << python << " is missing: run scripts/install-deps.sh";
  const TemporaryDirectory directory;
  const std::string command =
      fmt::format("'{}' '{}' '{}'", python.string(),
                  (source / "tests/io/data/tokenizer/json/tokenizer_oracle.py").string(), directory.path().string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const Tokenizer tokenizer(entry.path());
    TextEncoder encoder(tokenizer);
    int wrong = 0;
    std::filesystem::path cases = entry.path();
    for (const json& one : json::parse(read_whole_file(cases.replace_extension(".cases")))) {
      const std::vector<std::int32_t> ids = one.at("ids");
      if (one.contains("text")) {
        const std::string text = one.contains("hex") ? from_hex(one.at("hex")) : one.at("text").get<std::string>();
        std::vector<std::int32_t> cached;
        encoder.encode(text, cached);
        if (tokenizer.encode(text) != ids || cached != ids) {
          ADD_FAILURE() << entry.path().stem() << " encodes otherwise: " << one.dump().substr(0, 500) << "\nas "
                        << json(cached).dump().substr(0, 500);
          ++wrong;
        }
      }
      if (json(tokenizer.decode(ids)) != one.at("decoded")) {
        ADD_FAILURE() << entry.path().stem() << " decodes otherwise: " << one.dump().substr(0, 500) << "\nas "
                      << tokenizer.decode(ids).substr(0, 500);
        ++wrong;
      }
      if (wrong > 3) break;
    }
  }
  EXPECT_EQ(files, 20);
}

/// Returns a tokenizer with the letters a to d and some merges. `change` modifies its JSON.
json letters() {
  return {{"version", "1.0"},
          {"added_tokens", json::array({{{"id", 7},
                                         {"content", "</s>"},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}, {"ab", 4}, {"cd", 5}, {"abcd", 6}}},
            {"merges", json::array({json::array({"a", "b"}), json::array({"c", "d"}), json::array({"ab", "cd"})})}}}};
}
TokenizerJson made_of(const json& file) { return {file.dump(), "file.json"}; }
std::vector<std::int32_t> encoded(const TokenizerJson& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, {}, nullptr, ids);
  return ids;
}

TEST(TokenizerJson, MergesByRank) {
  const TokenizerJson tokenizer = made_of(letters());
  EXPECT_EQ(tokenizer.vocab(), 8);
  EXPECT_THAT(encoded(tokenizer, "abcd"), ElementsAre(6));
  EXPECT_THAT(encoded(tokenizer, "dabcab"), ElementsAre(3, 4, 2, 4));
  EXPECT_THAT(encoded(tokenizer, "ab</s>cd"), ElementsAre(4, 7, 5));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{6, 7, 4}), "abcdab");
}

TEST(TokenizerJson, ShortAndLongWordsAreMergedEqually) {
  const TokenizerJson tokenizer = made_of(letters());
  std::string text;
  std::vector<std::int32_t> expected;
  for (int i = 0; i < 1000; ++i) {
    text += "abcdab";
    expected.insert(expected.end(), {6, 4});
  }
  EXPECT_EQ(encoded(tokenizer, text), expected);
}

TEST(TokenizerJson, TheBoundsOfATextAreThePostProcessorsTokens) {
  json file = letters();
  EXPECT_EQ(made_of(file).end_of_document(), 7);
  EXPECT_THAT(made_of(file).added_around().before, IsEmpty());
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"SpecialToken", {{"id", "c"}, {"type_id", 0}}}}}}};
  EXPECT_EQ(made_of(file).end_of_document(), 2);
  EXPECT_THAT(made_of(file).added_around().before, ElementsAre(1));
  file["post_processor"]["single"].erase(2);
  EXPECT_EQ(made_of(file).end_of_document(), 7);
  EXPECT_THAT(made_of(file).added_around().before, ElementsAre(1));
  const json bytes{{"type", "ByteLevel"}}, bert{{"type", "BertProcessing"}, {"cls", {"d", 3}}, {"sep", {"a", 0}}};
  const json inner = file["post_processor"];
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {inner, bytes}}};
  EXPECT_THAT(made_of(file).added_around().before, ElementsAre(1));
  file["post_processor"]["processors"].push_back(bert);  // added around the tokens of the others
  EXPECT_THAT(made_of(file).added_around().before, ElementsAre(3, 1));
  EXPECT_THAT(made_of(file).added_around().after, ElementsAre(0));
  EXPECT_EQ(made_of(file).end_of_document(), 0);
  file["post_processor"] = inner;
  file["post_processor"]["single"].erase(0);
  EXPECT_THAT(made_of(file).added_around().before, IsEmpty());
  file["added_tokens"][0]["content"] = "<end>";
  expect_bad_input([&] { made_of(file); }, "file.json cannot be used: no end-of-text token");
}

TEST(TokenizerJson, UnsupportedOrInvalidPartsAreNamed) {
  const auto refused = [](const char* pointer, const json& value, const std::string& words) {
    json file = letters();
    file[json::json_pointer(pointer)] = value;
    expect_bad_input([&] { made_of(file); }, words);
  };
  refused("/normalizer", {{"type", "Precompiled"}},
          "file.json cannot be used: the normalizer Precompiled is not supported");
  refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}, "the pre_tokenizer UnicodeScripts is not supported");
  refused("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "BertPreTokenizer"}}}}},
          "BertPreTokenizer");
  refused("/decoder", {{"type", "WordPiece"}}, "the decoder WordPiece is not supported");
  refused("/post_processor", {{"type", "Other"}}, "the post_processor Other is not supported");
  refused("/model/type", "WordPiece", "the model WordPiece is not supported");
  refused("/model/end_of_word_suffix", "</w>", "end_of_word_suffix");
  refused("/model/dropout", 0.1, "dropout");
  refused("/model/unk_token", "<unk>", "unk_token <unk> is not in its vocabulary");
  refused("/model/vocab/e", 4, "two tokens have the id 4");
  refused("/model/vocab/e", -1, "the token e has the id -1");
  refused("/model/vocab/e", std::int64_t{1} << 40, "the token e has the id 1099511627776");
  refused("/model/vocab/e", "five", "file.json is not a tokenizer.json");
  refused("/model/vocab", json::object(), "merged token ab is not in its vocabulary");
  refused("/model/merges/0", {"a", "z"}, "merged token az is not in its vocabulary");
  refused("/model/merges/0", {"a"}, "a merge of BPE does not have two tokens");
  refused("/model/merges/0", "a b c", "the merge a b c of BPE does not have two tokens");
  refused("/added_tokens/0/id", 9, "the added token </s> has the id 9, but its position requires 7");
  refused("/added_tokens/0/content", "", "is empty or occurs twice");
  refused("/pre_tokenizer",
          {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}, {"invert", false}},
          "the regular expression (a is invalid: end pattern with unmatched parenthesis");
  refused("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Odd"}, {"invert", false}},
          "Odd is not one of the 5 allowed values");
  refused("/version", "2.0", "its version is \"2.0\", not 1.0");
  refused("/foo", 1, "it has the unknown member foo");
  refused("/model/byte_fallback", "yes", "file.json is not a tokenizer.json");
  refused("/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}, {"Regex", "b"}}}, {"content", ""}},
          "but has 2 members");
  refused("/pre_tokenizer",
          {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"add_prefix_space", false}},
          "contradict each other");
  for (const char* pattern : {"(?x)a", "a(?x:b)"}) {
    refused("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
            "has the option x, which is not supported");
  }
  refused("/pre_tokenizer",
          {{"type", "Split"}, {"pattern", {{"Regex", "\\X"}}}, {"behavior", "Isolated"}, {"invert", false}},
          "has \\X, ");
  json deep = 1;
  for (int i = 0; i < 100; ++i) deep = json::array({deep});
  refused("/normalizer", deep, "it nests deeper than");
  expect_bad_input([] { TokenizerJson("{\"model\": ", "file.json"); }, "file.json is not a tokenizer.json");
  expect_bad_input([] { TokenizerJson("{}", "file.json"); }, "file.json is not a tokenizer.json");
}

TEST(TokenizerJson, APatternThatBacktracksWithoutEndIsRefused) {
  json file = letters();
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a|a)*(aa|a)*d"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const TokenizerJson tokenizer = made_of(file);
  EXPECT_THAT(encoded(tokenizer, "aad"), ElementsAre(0, 0, 3));
  expect_bad_input([&] { encoded(tokenizer, std::string(60, 'a') + "ed"); }, "takes more than");
}

/// Each piece takes some thousand steps, which are few, but their sum exceeds the budget.
TEST(TokenizerJson, StepsAreBoundedForTheDocument) {
  json file = letters();
  const auto split = [](const char* pattern, const char* behavior) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}};
  };
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {split("\n", "Isolated"), split("(a|a)*(aa|a)*d", "Isolated")}}};
  const TokenizerJson tokenizer = made_of(file);
  const std::string line = std::string(14, 'a') + "ed\n";
  std::string text;
  for (int i = 0; i < 3000; ++i) text += line;
  EXPECT_FALSE(encoded(tokenizer, line).empty());
  expect_bad_input([&] { encoded(tokenizer, text); }, "takes more than");
}

json split(const char* pattern, const char* behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}};
}
json replace(const char* pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
}

/// Returns a byte-level tokenizer of single characters, with one more added token if `added` has a content.
json characters(json added = {}) {
  json file = letters();
  file["model"]["merges"] = json::array();
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}, {" ", 4}, {"\n", 5}, {"0", 6}};
  file["pre_tokenizer"] = split("d");
  if (added.is_null()) return file;
  json token = file["added_tokens"][0];
  token.update({{"id", 8}, {"special", false}});
  token.update(added);
  file["added_tokens"].push_back(token);
  return file;
}

/// Returns where cut() cuts `text`, which is in the middle of a long text that can be cut nowhere else; 0 if nowhere.
std::size_t cut_within(const json& file, const std::string& text) {
  const std::string around(3000, '0');
  const std::size_t at = made_of(file).cut(around + text + around);
  return at == 0 ? 0 : at - around.size();
}

TEST(TokenizerJson, TextIsNotCutWhereATokenMayExtend) {
  json file = characters();
  EXPECT_EQ(cut_within(file, "ab ab"), 2);
  EXPECT_EQ(cut_within(file, "b\nc"), 2);
  EXPECT_EQ(made_of(file).cut("ab ab"), 0) << "an added token may follow that is not yet known";
  file["model"]["vocab"]["a "] = 6;
  file["model"]["vocab"].erase("0");
  EXPECT_EQ(cut_within(file, "ab ab"), 0);
  EXPECT_EQ(cut_within(file, "b\nc"), 2);
  file["model"]["vocab"]["\na"] = 6;
  file["model"]["vocab"].erase("a ");
  EXPECT_EQ(cut_within(file, "ab ab"), 2);
  EXPECT_EQ(cut_within(file, "b\nc"), 0);
}

TEST(TokenizerJson, TextIsNotCutWhereAnAddedTokenMayExtend) {
  EXPECT_EQ(cut_within(characters({{"content", "b c"}}), "b c"), 0);
  EXPECT_EQ(cut_within(characters({{"content", "b\nc"}}), "b\nc"), 0);
  const json user{{"content", "<user>"}, {"lstrip", true}};
  EXPECT_EQ(cut_within(characters(user), "b\n<user>"), 0);
  EXPECT_EQ(cut_within(characters(user), "b\nc"), 2);
  EXPECT_EQ(cut_within(characters({{"content", "ab"}, {"rstrip", true}}), "ab c"), 0);
  json file = characters({{"content", "b\nc"}, {"normalized", true}});  // normalised to "b c"
  file["normalizer"] = replace("\n", " ");
  EXPECT_EQ(cut_within(file, "b\nc"), 0);
}

/// The patterns of DeepSeek-LLM and DeepSeekMoE, and their tokens, whose "▁" is no space.
TEST(TokenizerJson, DeepSeeksTextIsCutAtWordsAndLines) {
  json file = characters({{"content", "<｜begin▁of▁sentence｜>"}, {"special", true}});
  file["model"]["vocab"].erase(" ");
  file["model"]["vocab"].erase("\n");
  file["model"]["vocab"].update({{"Ġ", 4}, {"Ċ", 5}});
  const json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}, {"trim_offsets", true}};
  const auto sequence = [&](const char* first) {
    file["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {split(first), split("\\s?[A-Za-z]+"), split("\\s?[!-/:-~]+"), bytes}}};
    return file;
  };
  EXPECT_EQ(cut_within(sequence("[\r\n]"), "ab ab"), 2);
  EXPECT_EQ(cut_within(sequence("[\r\n]"), "b\nc"), 2);
  EXPECT_EQ(cut_within(sequence("[\r]"), "b\nc"), 0);
}

TEST(TokenizerJson, TextIsNotCutWhereAPatternMayMatch) {
  const auto with_normalizer = [](const char* pattern) {
    json file = characters();
    file["normalizer"] = replace(pattern, "d");
    return file;
  };
  EXPECT_EQ(cut_within(with_normalizer("b c"), "b c"), 0);
  EXPECT_EQ(cut_within(with_normalizer("b\nc"), "b\nc"), 0);
  EXPECT_EQ(cut_within(with_normalizer("b0"), "b c"), 1);
  const auto with_split = [](const char* pattern) {
    json file = characters();
    file["pre_tokenizer"] = split(pattern, "Removed");
    return file;
  };
  EXPECT_EQ(cut_within(with_split("\\s+$"), "b\nc"), 0);
  EXPECT_EQ(cut_within(with_split("\\s+$"), "b c"), 1);
  EXPECT_EQ(cut_within(with_split("\\p{L}(?= \\p{L})"), "b c"), 0);
  EXPECT_EQ(cut_within(with_split("\\p{L}(?= \\p{L})"), "b\nc"), 2);
  EXPECT_EQ(cut_within(with_split("\"[^\"]*\""), "\"" + std::string(2000, 'a') + " b" + std::string(2000, 'a') + "\""),
            0);
}

/// `tokenizers` encodes [a, token, b]: the token takes the spaces on both sides, which contain it once more.
TEST(TokenizerJson, SpacesThatAnAddedTokenStripsAreEncodedOnce) {
  const json spaces{{"content", "  "}, {"lstrip", true}, {"rstrip", true}};
  const TokenizerJson tokenizer = made_of(characters(spaces));
  EXPECT_THAT(encoded(tokenizer, "a    b"), ElementsAre(0, 8, 1));
  EXPECT_THAT(encoded(tokenizer, "    "), ElementsAre(8));
  json file = characters({{"content", "<x>"}, {"rstrip", true}});
  json other = file["added_tokens"][1];
  other.update({{"content", "  "}, {"id", 9}, {"lstrip", true}, {"rstrip", false}});
  file["added_tokens"].push_back(other);
  expect_bad_input([&] { encoded(made_of(file), "<x>    b"); }, "is within the whitespace that belongs to the token");
}

TEST(TokenizerJson, NormalizersWhosePositionsMatterAreRefused) {
  json file = characters({{"content", "\n\n"}, {"normalized", true}});
  file["normalizer"] = replace("\\s+$", "");
  expect_bad_input([&] { made_of(file); }, "is empty after normalisation");
  const json first{{"type", "Metaspace"}, {"replacement", "|"}, {"prepend_scheme", "first"}, {"split", true}};
  const auto refused = [](const json& normalizer, const json& pre_tokenizer, const char* words) {
    json file = characters();
    file["normalizer"] = normalizer;
    file["pre_tokenizer"] = pre_tokenizer;
    if (words == nullptr) {
      made_of(file);
    } else {
      expect_bad_input([&] { made_of(file); }, words);
    }
  };
  const char* const beginning = "may change the beginning of a text";
  refused(replace("^\\s+", ""), first, beginning);
  refused(replace("^\\s+", "x"), first, beginning);
  refused(replace(" {2,}", " "), first, nullptr);
  refused({{"type", "Replace"}, {"pattern", {{"String", "``"}}}, {"content", "\""}}, first, beginning);
  refused({{"type", "Replace"}, {"pattern", {{"String", "é"}}}, {"content", "e"}}, first, nullptr);
  refused(replace("^\\s+", ""), split("a"), nullptr);
  const char* const empty = "inserts text at empty matches of";
  refused(replace("^", "_"), split("a"), empty);
  refused({{"type", "Sequence"}, {"normalizers", {replace("x*", "_")}}}, split("a"), empty);
  refused(replace("^", "_"), nullptr, nullptr);
  refused(replace("x*", ""), split("a"), nullptr);
}

}  // namespace
}  // namespace lyceum
