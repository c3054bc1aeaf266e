#include "io/data/tokens/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/megatron_files.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/token_meta.h"
#include "io/data/tokens/unigram_entropy.h"
#include "io/files/whole_file.h"

namespace lyceum {
namespace {

using ::testing::HasSubstr;

using TokenSourceTest = MegatronFiles;

/// 100,000 tokens of two bytes in sequences of 1,000.
void write_long_file(const std::string& prefix, std::int32_t first) {
  MegatronWriter writer(prefix, 1000);
  std::vector<std::int32_t> tokens(1000, 7);
  tokens[0] = first;
  for (int s = 0; s < 100; ++s) writer.add_document(tokens);
  writer.finish();
}

TEST_F(TokenSourceTest, AFileThatIsCutShortWhileItIsOpenIsAnError) {
  write_long_file(prefix(), 7);
  const auto file = open_tokens(prefix());
  const std::string bin = prefix() + ".bin", idx = prefix() + ".idx";
  std::filesystem::resize_file(bin, 120001);
  std::vector<std::int32_t> tokens(1000);
  EXPECT_NO_THROW(file->read(59000, tokens));
  for (const std::int64_t first : {59001, 60000, 99000}) {
    try {
      file->read(first, tokens);
      FAIL() << "read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_THAT(error.what(), HasSubstr(bin + ": bytes " + std::to_string(2 * first) + " to "));
      EXPECT_THAT(error.what(), HasSubstr("has 120001 bytes now, but had 200000 when it was opened"));
    }
  }
  EXPECT_THROW(unigram_entropy(*file, 0, 100000), Error);
  std::filesystem::resize_file(idx, 0);
  EXPECT_THROW(file->document_begin(1), Error);
  EXPECT_THROW(file->fingerprint(), Error);
}

TEST_F(TokenSourceTest, AFingerprintTellsOtherTokensOfTheSameSize) {
  const auto fingerprint = [&](std::int32_t first) {
    write_long_file(prefix(), first);
    return open_tokens(prefix())->fingerprint();
  };
  const std::string before = fingerprint(7);
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(before, fingerprint(7));
  EXPECT_NE(before, fingerprint(8));
  Parts parts;
  const auto of_parts = [&] { return open_tokens(write(parts))->fingerprint(); };
  const std::string small = of_parts();
  parts.boundaries = {0, 1, 3};  // the same tokens, divided into other documents
  EXPECT_NE(small, of_parts());
}

TEST_F(TokenSourceTest, AFingerprintOfALargeFileReadsItsEndsAndPartsBetween) {
  const std::int64_t tokens = 4 << 20;
  const auto fingerprint = [&](std::int64_t changed) {
    MegatronWriter writer(prefix(), 1000);
    std::vector<std::int32_t> document(static_cast<std::size_t>(tokens), 7);
    if (changed >= 0)
      std::fill_n(document.begin() + changed, std::min<std::int64_t>(tokens - changed, tokens / 255), 8);
    writer.add_document(document);
    writer.finish();
    return open_tokens(prefix())->fingerprint();
  };
  const std::string before = fingerprint(-1);
  for (const std::int64_t changed : {std::int64_t{0}, tokens / 3, tokens / 2, tokens - 1}) {
    EXPECT_NE(before, fingerprint(changed)) << changed;
  }
}

std::vector<std::uint8_t> trained_in(const TokenSource& file, std::int64_t first, std::size_t count) {
  std::vector<std::uint8_t> trained(count);
  file.read_trained(first, trained);
  return trained;
}

using Mask = std::vector<std::uint8_t>;

TEST_F(TokenSourceTest, AMaskSaysWhichTokensAreTrained) {
  MegatronWriter writer(prefix(), 10);
  writer.add_document(std::vector<std::int32_t>{5, 6});
  writer.add_document(std::vector<std::int32_t>{7, 8, 9}, Mask{0, 1, 0});
  writer.add_document({}, {});
  writer.add_document(std::vector<std::int32_t>{1});
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{1}, Mask{}), Error);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{1}, Mask{2}), Error);
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".mask"));
  writer.finish();
  EXPECT_EQ(read_whole_file(prefix() + ".mask"), std::string("\1\1\0\1\0\1", 6));
  const auto file = open_tokens(prefix());
  EXPECT_TRUE(file->has_mask());
  EXPECT_EQ(trained_in(*file, 0, 6), (Mask{1, 1, 0, 1, 0, 1}));
  EXPECT_EQ(trained_in(*file, 3, 2), (Mask{1, 0}));
  EXPECT_THROW(trained_in(*file, 5, 2), Error);
}

TEST_F(TokenSourceTest, WithoutAMaskAllTokensAreTrainedAndAnOldOneGoes) {
  write_whole_file(prefix() + ".mask", "old");
  MegatronWriter writer(prefix(), 10);
  writer.add_document(std::vector<std::int32_t>{5, 6, 7});
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".mask"));
  const auto file = open_tokens(prefix());
  EXPECT_FALSE(file->has_mask());
  EXPECT_EQ(trained_in(*file, 1, 2), (Mask{1, 1}));
}

TEST_F(TokenSourceTest, RefusesAMaskThatDoesNotFitOrIsMissing) {
  const std::string mask = prefix() + ".mask";
  for (const char* const wrong : {"", "\1\1\1\1", "\1\1\1\1\1\1"}) {
    write_whole_file(mask, wrong);
    write(Parts{});
    expect_open_refused({mask + " has ", "5 tokens", "copy both again"});
  }
  write_whole_file(mask, "\1\1\1\2\1");
  const auto file = open_tokens(prefix());
  EXPECT_EQ(trained_in(*file, 0, 3), (Mask{1, 1, 1}));
  try {
    trained_in(*file, 1, 4);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr(mask + ": byte 3 is 2"));
  }
  std::filesystem::remove(mask);
  write_token_meta(prefix(), {.tokens = 5, .trained = 4, .tokenizer = {}, .tokenizer_sha256 = {}});
  expect_open_refused({mask + " is missing", "4 of 5 tokens"});
}

TEST_F(TokenSourceTest, AFingerprintCoversTheMask) {
  write(Parts{});
  const std::string without = open_tokens(prefix())->fingerprint();
  write_whole_file(prefix() + ".mask", "\1\1\1\1\1");
  const std::string all = open_tokens(prefix())->fingerprint();
  write_whole_file(prefix() + ".mask", std::string("\1\1\1\0\1", 5));
  EXPECT_NE(without, all);
  EXPECT_NE(all, open_tokens(prefix())->fingerprint());
}

/// Tokens in memory: implements exactly what a token source must.
class TokensInMemory : public TokenSource {
 public:
  TokensInMemory(std::vector<std::int32_t> tokens, std::vector<std::int64_t> begins)
      : TokenSource("memory"), values_(std::move(tokens)), begins_(std::move(begins)) {}

  std::int64_t tokens() const override { return std::ssize(values_); }
  std::int64_t documents() const override { return std::ssize(begins_) - 1; }
  std::int64_t document_begin(std::int64_t d) const override { return begins_.at(static_cast<std::size_t>(d)); }
  void for_document_begins(const std::function<void(std::span<const std::int64_t>)>& each) const override {
    each(begins_);
  }
  const std::string& path() const override { return prefix(); }

 private:
  void copy_tokens(std::int64_t first, std::span<std::int32_t> out) const override {
    std::copy_n(values_.begin() + first, out.size(), out.begin());
  }
  void add_contents(Sha256& digest) const override { digest.update(std::as_bytes(std::span(values_))); }

  std::vector<std::int32_t> values_;
  std::vector<std::int64_t> begins_;
};

TEST(AnyTokenSource, IsReadWithinItsBounds) {
  const TokensInMemory source({5, 6, 7, 8, 9}, {0, 2, 2, 5});
  const TokenSource& tokens = source;
  EXPECT_EQ(all_tokens(tokens), (std::vector<std::int32_t>{5, 6, 7, 8, 9}));
  std::vector<std::int32_t> two(2);
  EXPECT_THROW(tokens.read(4, two), Error);
  EXPECT_THROW(tokens.read(-1, two), Error);
  EXPECT_EQ(tokens.document_begins(0, 5), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(tokens.document_begins(1, 2), (std::vector<std::int64_t>{}));
  EXPECT_FALSE(tokens.has_mask());
  EXPECT_EQ(trained_in(tokens, 3, 2), (Mask{1, 1}));
  EXPECT_NE(tokens.fingerprint(), TokensInMemory({5, 6, 7, 8, 8}, {0, 5}).fingerprint());
}

}  // namespace
}  // namespace lyceum
