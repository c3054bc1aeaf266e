#include "io/data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/encoding/tokenizer_training.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using ::testing::HasSubstr;

std::string code_like_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    const std::string name = "value_" + std::string(1, static_cast<char>('a' + i % 26));
    text += "static int get_" + name + "(struct buffer *self) {\n\tif (self == NULL)\n        return -" +
            std::to_string(i) + ";\n\n\treturn self->" + name + "; // größer\n}\n";
  }
  return text;
}

/// Texts that are often changed by tokenizers.
std::vector<std::string> nasty_texts() {
  std::string all_bytes;
  for (int c = 0; c < 256; ++c) all_bytes += static_cast<char>(c);
  return {"",
          " ",
          "\n",
          "\t",
          "a",
          "  leading and trailing  ",
          "tabs\tand\t\t\truns\t\t\t\t\t\t\t\t\t\t\t\t",
          "\n\n\nlines\n \n  \n\n\n\n\n\n\n\n\n\n\n\n\n",
          "CRLF\r\nlines\r\n\r\nand a lone \r here",
          std::string(1000, ' ') + "x" + std::string(300, '\n'),
          "for (;;) {\n                return std::move(x);\n        }\n",
          "emoji 🙂👩‍👩‍👧‍👦🇩🇪, 漢字, ßäöü, עברית, combining é",
          "a real \xE2\x96\x81 mark and \xE2\x96\x81\xE2\x96\x81, unknown \xE2\x96\x85, replacement \xEF\xBF\xBD",
          "<unk> <s> </s> <0x41> <|endoftext|>",
          "NUL \0 inside" + std::string(2, '\0'),
          "ﬁ ½ Å Ａ \u00A0 \u200B \u2028 \uFEFF",
          "\xFF\xFE stray \x80 cut \xE2\x96",
          "surrogate \xED\xA0\x80, overlong \xC0\xAF, beyond \xF4\x90\x80\x80",
          all_bytes,
          std::string(20000, 'x'),
          code_like_text()};
}

CorpusItem whole_text(const std::filesystem::path& file) {
  return {.document = {file, 0, static_cast<std::int64_t>(std::filesystem::file_size(file))}};
}

class TokenizerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<TemporaryDirectory>();
    write_whole_file(text(), code_like_text());
    train_tokenizer(training(model()));
    tokenizer_ = std::make_unique<Tokenizer>(model());
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    directory_.reset();
  }
  static std::filesystem::path text() { return directory_->path() / "text.c"; }
  static std::filesystem::path model() { return directory_->path() / "tok.model"; }
  static TokenizerTraining training(const std::filesystem::path& model) {
    return {.files = {whole_text(text())}, .model = model, .vocab = 420};
  }

  static std::unique_ptr<TemporaryDirectory> directory_;
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<TemporaryDirectory> TokenizerTest::directory_;
std::unique_ptr<Tokenizer> TokenizerTest::tokenizer_;

/// Returns a text as SentencePiece decodes it: U+2581 becomes a space, and each byte that is not UTF-8 becomes U+FFFD.
std::string given_back(std::string_view text) {
  std::string out;
  for (std::size_t at = 0, length = 0; at < text.size(); at += std::max<std::size_t>(1, length)) {
    length = utf8_length(text, at);
    const std::string_view character = text.substr(at, length);
    out += length == 0 ? replacement_character : character == "\xE2\x96\x81" ? " " : character;
  }
  return out;
}

TEST_F(TokenizerTest, GivesBackEveryText) {
  for (const std::string& text : nasty_texts()) {
    const auto tokens = tokenizer_->encode(text);
    EXPECT_EQ(tokenizer_->decode(tokens), given_back(text));
    for (const std::int32_t token : tokens) {
      EXPECT_TRUE(token >= 0 && token < tokenizer_->vocab() && token != tokenizer_->end_of_document());
    }
  }
}

TEST_F(TokenizerTest, TextEncoderGivesTheSameTokens) {
  TextEncoder encoder(*tokenizer_);
  for (int round = 0; round < 2; ++round) {  // the second time, words are remembered
    for (const std::string& text : nasty_texts()) {
      std::vector<std::int32_t> tokens{42};
      encoder.encode(text, tokens);
      std::vector<std::int32_t> expected = tokenizer_->encode(text);
      expected.insert(expected.begin(), 42);
      EXPECT_EQ(tokens, expected) << text.substr(0, 100);
    }
  }
}

TEST_F(TokenizerTest, AgreesWithPlainSentencePieceOnTextInOnePiece) {
  sentencepiece::SentencePieceProcessor plain;
  ASSERT_TRUE(plain.LoadFromSerializedProto(read_whole_file(model())).ok());
  const std::string text = code_like_text() + "\n\n\n        \t\tindented größer 🙂\r\n";
  EXPECT_EQ(tokenizer_->encode(text), plain.EncodeAsIds(text));
  EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text);
}

TEST_F(TokenizerTest, WhitespaceAndCommonWordsAreShort) {
  EXPECT_EQ(tokenizer_->vocab(), 420);
  EXPECT_EQ(tokenizer_->encode("\n\n").size(), 1);
  EXPECT_EQ(tokenizer_->encode("\t\t\t").size(), 1);
  EXPECT_LE(tokenizer_->encode("        return").size(), 3);
  EXPECT_EQ(tokenizer_->encode(" self").size(), 1);
  EXPECT_LT(3 * tokenizer_->encode(code_like_text()).size(), code_like_text().size());
}

TEST_F(TokenizerTest, DecodeLeavesOutControlTokensAndRefusesUnknownOnes) {
  std::vector<std::int32_t> tokens = tokenizer_->encode("ab");
  tokens.push_back(tokenizer_->end_of_document());
  EXPECT_EQ(tokenizer_->decode(tokens), "ab");
  EXPECT_THROW(tokenizer_->decode(std::vector<std::int32_t>{420}), Error);
  EXPECT_THROW(tokenizer_->decode(std::vector<std::int32_t>{-1}), Error);
}

TEST_F(TokenizerTest, TrainingTwiceGivesTheSameBytes) {
  const auto again = directory_->path() / "new folder" / "again.model";
  train_tokenizer(training(again));
  EXPECT_TRUE(read_whole_file(again) == read_whole_file(model()));  // EXPECT_EQ would print binary data
}

TEST_F(TokenizerTest, ASampleIsChosenBySeed) {
  auto options = training(directory_->path() / "sample.model");
  options.vocab = 390;
  options.sample_bytes = 2500;
  train_tokenizer(options);
  const std::string first = read_whole_file(options.model);
  train_tokenizer(options);
  EXPECT_TRUE(read_whole_file(options.model) == first);
  options.seed = 2;
  train_tokenizer(options);
  EXPECT_FALSE(read_whole_file(options.model) == first);
}

TEST_F(TokenizerTest, TrainingOnTooLittleIsNamed) {
  auto options = training(directory_->path() / "never.model");
  options.vocab = 100000;
  expect_bad_input([&] { train_tokenizer(options); }, "never.model");
  options.vocab = 50;
  expect_bad_input([&] { train_tokenizer(options); }, "never.model");
  options.files = {};
  expect_bad_input([&] { train_tokenizer(options); }, "no text");
  options.files = {{.document = {directory_->path() / "absent.txt", 0, 10}}};
  expect_bad_input([&] { train_tokenizer(options); }, "absent.txt");
  EXPECT_FALSE(std::filesystem::exists(options.model));
}

TEST_F(TokenizerTest, AnAbsentOrDamagedModelIsNamed) {
  const auto damaged = directory_->path() / "damaged.model";
  expect_bad_input([&] { Tokenizer{damaged}; }, "damaged.model does not exist");
  const std::string whole = read_whole_file(model());
  for (const std::string& bytes : {std::string(), std::string("not a model"), whole.substr(0, whole.size() / 2)}) {
    write_whole_file(damaged, bytes);
    expect_bad_input([&] { Tokenizer{damaged}; }, "damaged.model");
  }
  // a link to itself, for which the system reports an error
  std::filesystem::create_symlink("loop", directory_->path() / "loop");
  expect_bad_input([&] { Tokenizer{directory_->path() / "loop"}; }, "loop cannot be read: it is a symbolic link");
  EXPECT_TRUE(Tokenizer::is_json(" \n{}"));
  EXPECT_FALSE(Tokenizer::is_json(whole));
}

}  // namespace
}  // namespace lyceum
