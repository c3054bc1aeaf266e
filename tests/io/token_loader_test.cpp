#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/token_data.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using ::testing::HasSubstr;
using Kind = SampleOrder::Kind;

class TokenLoaderTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TokenFile> file_of(const std::vector<std::int32_t>& tokens, std::int64_t vocab = 100000) {
    const std::string prefix = directory_.path() / "tokens";
    TokenFileWriter writer(prefix, vocab);
    writer.add_document(tokens);
    writer.finish();
    return std::make_shared<TokenFile>(prefix);
  }
  std::shared_ptr<const TokenFile> counting_file(std::int32_t tokens) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(tokens));
    std::iota(values.begin(), values.end(), 0);
    return file_of(values);
  }

  TemporaryDirectory directory_;
};

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < order.count(); ++i) samples.push_back(order(epoch * order.count() + i));
  return samples;
}

TEST(SamplesIn, LeavesATargetForTheLastToken) {
  EXPECT_EQ(samples_in(0, 4), 0);
  EXPECT_EQ(samples_in(4, 4), 0);
  EXPECT_EQ(samples_in(5, 4), 1);
  EXPECT_EQ(samples_in(8, 4), 1);
  EXPECT_EQ(samples_in(9, 4), 2);
  EXPECT_THROW(samples_in(9, 0), Error);
}

TEST(SampleOrder, SequentialCountsAndWraps) {
  const SampleOrder order(Kind::sequential, 1, 10, 3);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<std::int64_t>{10, 11, 12}));
  EXPECT_EQ(epoch_of(order, 7), (std::vector<std::int64_t>{10, 11, 12}));
}

TEST(SampleOrder, ShuffledIsAnotherPermutationEveryEpoch) {
  for (const std::int64_t count : {1, 2, 3, 97, 256}) {
    const SampleOrder order(Kind::shuffled, 5, 1000, count);
    std::set<std::vector<std::int64_t>> seen;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<std::int64_t> samples = epoch_of(order, epoch);
      seen.insert(samples);
      std::ranges::sort(samples);
      std::vector<std::int64_t> all(static_cast<std::size_t>(count));
      std::iota(all.begin(), all.end(), 1000);
      EXPECT_EQ(samples, all);
    }
    if (count > 90) {
      EXPECT_EQ(seen.size(), 4);
    }
  }
}

TEST(SampleOrder, IsAPureFunctionOfSeedAndPosition) {
  const SampleOrder one(Kind::shuffled, 5, 0, 97), same(Kind::shuffled, 5, 0, 97), other(Kind::shuffled, 6, 0, 97);
  const auto forward = epoch_of(one, 3);
  std::vector<std::int64_t> backward;
  for (std::int64_t i = 96; i >= 0; --i) backward.insert(backward.begin(), same(3 * 97 + i));
  EXPECT_EQ(forward, backward);
  EXPECT_NE(forward, epoch_of(other, 3));
  EXPECT_NE(forward, epoch_of(SampleOrder(Kind::sequential, 5, 0, 97), 3));
}

TEST(SampleOrder, AnEmptyRangeCanBeMadeButNotRead) {
  const SampleOrder order(Kind::shuffled, 5, 0, 0);
  EXPECT_THROW(order(0), Error);
  EXPECT_THROW(SampleOrder(Kind::shuffled, 5, 0, 3)(-1), Error);
  EXPECT_THROW(SampleOrder(Kind::shuffled, 5, -1, 3), Error);
}

TEST_F(TokenLoaderTest, SequentialSamplesAreTheStreamCutAtSeqLen) {
  const TokenLoader loader(counting_file(14), SampleOrder(Kind::sequential, 1, 0, 3), 4);
  std::vector<std::int32_t> inputs(8), targets(8);
  loader.load(1, 2, 14, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11, 12}));
  loader.load(2, 2, 14, inputs, targets);  // wraps
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{8, 9, 10, 11, 0, 1, 2, 3}));
}

TEST_F(TokenLoaderTest, ShuffledBatchesDoNotDependOnTheirSize) {
  const TokenLoader loader(counting_file(1001), SampleOrder(Kind::shuffled, 3, 20, 77), 10);
  std::vector<std::int32_t> inputs(1000), targets(1000);
  loader.load(40, 100, 1001, inputs, targets);
  for (std::size_t s = 0; s < 100; ++s) {
    std::vector<std::int32_t> input(10), target(10);
    loader.load(40 + static_cast<std::int64_t>(s), 1, 1001, input, target);
    EXPECT_EQ(input, std::vector<std::int32_t>(inputs.begin() + 10 * s, inputs.begin() + 10 * s + 10));
    EXPECT_EQ(input.front(), 10 * loader.order()(40 + static_cast<std::int64_t>(s)));
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(target[i], input[i] + 1);
  }
}

TEST(SampleOrderSpread, TakesTheMiddleOfEqualParts) {
  for (const std::int64_t count : {1, 2, 7, 46, 1000}) {
    const SampleOrder all(Kind::sequential, 1, 5, count);
    for (std::int64_t samples = 1; samples <= count; samples += 1 + samples / 8) {
      const SampleOrder some = all.spread(samples);
      for (std::int64_t i = 0; i < samples; ++i) {
        const std::int64_t position = some(i) - 5;
        EXPECT_GE(position, i * count / samples) << samples << " of " << count;
        EXPECT_LT(position, (i + 1) * count / samples) << samples << " of " << count;
        const double middle =
            (static_cast<double>(i) + 0.5) * static_cast<double>(count) / static_cast<double>(samples);
        EXPECT_LE(std::abs(static_cast<double>(position) + 0.5 - middle), 1.5) << samples << " of " << count;
      }
      EXPECT_EQ(some(samples), some(0));  // the next epoch
    }
    EXPECT_THROW(all.spread(0), Error);
    EXPECT_THROW(all.spread(count + 1), Error);
  }
}

TEST_F(TokenLoaderTest, NamesATokenOutsideTheVocabulary) {
  const auto expect = [&](const std::vector<std::int32_t>& tokens, std::int64_t vocab, const std::string& named) {
    const TokenLoader loader(file_of(tokens), SampleOrder(Kind::sequential, 1, 0, samples_in(5, 2)), 2);
    std::vector<std::int32_t> inputs(4), targets(4);
    try {
      loader.load(0, 2, vocab, inputs, targets);
      FAIL() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_THAT(error.what(), HasSubstr("tokens.bin"));
      EXPECT_THAT(error.what(), HasSubstr(named));
      EXPECT_THAT(error.what(), HasSubstr("vocabulary of " + std::to_string(vocab)));
    }
  };
  expect({9, 1, 2, 3, 4}, 9, "token 9 at position 0");
  expect({0, 1, 9, 3, 4}, 9, "token 9 at position 2");
  expect({0, 1, 2, 3, 70000}, 9, "token 70000 at position 4");
}

TEST_F(TokenLoaderTest, ASeqLenThatLeavesNoSampleIsAUsageError) {
  try {
    const TokenLoader loader(counting_file(10), SampleOrder(Kind::shuffled, 1, 0, 0), 10);
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("10 tokens"));
    EXPECT_THAT(error.what(), HasSubstr("batch.seq_len=10"));
  }
  const auto file = counting_file(11);
  EXPECT_NO_THROW(TokenLoader(file, SampleOrder(Kind::shuffled, 1, 0, 1), 10));
  EXPECT_THROW(TokenLoader(file, SampleOrder(Kind::shuffled, 1, 0, 2), 10), Error);
  EXPECT_THROW(TokenLoader(file, SampleOrder(Kind::shuffled, 1, 1, 1), 10), Error);
  EXPECT_THROW(TokenLoader(file, SampleOrder(Kind::shuffled, 1, 0, 0), 10), Error);
  EXPECT_THROW(TokenLoader(file, SampleOrder(Kind::shuffled, 1, 0, 1), 0), Error);
}

TEST_F(TokenLoaderTest, SpansOfAnotherSizeAreRefused) {
  const TokenLoader loader(counting_file(11), SampleOrder(Kind::sequential, 1, 0, 2), 5);
  std::vector<std::int32_t> five(5), ten(10);
  EXPECT_THROW(loader.load(0, 1, 11, ten, five), Error);
  EXPECT_THROW(loader.load(0, 1, 11, five, ten), Error);
  EXPECT_THROW(loader.load(0, 2, 11, five, five), Error);
}

TEST_F(TokenLoaderTest, UnigramEntropy) {
  const auto file = file_of({7, 7, 3, 9, 7, 3, 0, 0});
  EXPECT_NEAR(unigram_entropy(*file, 0, 4), 0.5 * std::log(2.0) + 0.5 * std::log(4.0), 1e-12);  // 1/2, 1/4, 1/4
  EXPECT_NEAR(unigram_entropy(*file, 4, 2), std::log(2.0), 1e-12);
  EXPECT_EQ(unigram_entropy(*file, 0, 2), 0);
  EXPECT_EQ(unigram_entropy(*file, 3, 1), 0);
  EXPECT_THROW(unigram_entropy(*file, 0, 0), Error);
  EXPECT_THROW(unigram_entropy(*file, 0, 9), Error);
}

TEST_F(TokenLoaderTest, UnigramEntropyOfManyTokensOverSeveralChunks) {
  std::vector<std::int32_t> tokens(200000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 1000);
  EXPECT_NEAR(unigram_entropy(*file_of(tokens), 0, 200000), std::log(1000.0), 1e-9);
}

}  // namespace
}  // namespace lyceum
