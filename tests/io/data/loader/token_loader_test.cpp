#include "io/data/loader/token_loader.h"

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
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using ::testing::HasSubstr;
using Kind = SampleOrder::Kind;

class TokenLoaderTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TokenSource> file_of(const std::vector<std::int32_t>& tokens, std::int64_t vocab = 100000) {
    const std::string prefix = directory_.path() / "tokens";
    MegatronWriter writer(prefix, vocab);
    writer.add_document(tokens);
    writer.finish();
    return open_tokens(prefix);
  }
  std::shared_ptr<const TokenSource> counting_file(std::int32_t tokens) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(tokens));
    std::iota(values.begin(), values.end(), 0);
    return file_of(values);
  }

  TemporaryDirectory directory_;
};

TEST_F(TokenLoaderTest, SequentialSamplesAreTheStreamCutAtSeqLen) {
  const TokenLoader loader(counting_file(14), SampleOrder(Kind::sequential, 1, 0, 3), 4);
  std::vector<std::int32_t> inputs(8), targets(8);
  loader.load(1, 2, 14, {inputs, targets});
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11, 12}));
  loader.load(2, 2, 14, {inputs, targets});  // continues in the next epoch
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{8, 9, 10, 11, 0, 1, 2, 3}));
}

TEST_F(TokenLoaderTest, ShuffledBatchesDoNotDependOnTheirSize) {
  const TokenLoader loader(counting_file(1001), SampleOrder(Kind::shuffled, 3, 20, 77), 10);
  std::vector<std::int32_t> inputs(1000), targets(1000);
  loader.load(40, 100, 1001, {inputs, targets});
  for (std::size_t s = 0; s < 100; ++s) {
    std::vector<std::int32_t> input(10), target(10);
    loader.load(40 + static_cast<std::int64_t>(s), 1, 1001, {input, target});
    EXPECT_EQ(input, std::vector<std::int32_t>(inputs.begin() + 10 * s, inputs.begin() + 10 * s + 10));
    EXPECT_EQ(input.front(), 10 * loader.order()(40 + static_cast<std::int64_t>(s)));
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(target[i], input[i] + 1);
  }
}

TEST(SamplesIn, LeavesATargetForTheLastToken) {
  EXPECT_EQ(samples_in(0, 4), 0);
  EXPECT_EQ(samples_in(4, 4), 0);
  EXPECT_EQ(samples_in(5, 4), 1);
  EXPECT_EQ(samples_in(8, 4), 1);
  EXPECT_EQ(samples_in(9, 4), 2);
  EXPECT_THROW(samples_in(9, 0), Error);
}

TEST_F(TokenLoaderTest, NamesATokenOutsideTheVocabulary) {
  const auto expect = [&](const std::vector<std::int32_t>& tokens, std::int64_t vocab, const std::string& named) {
    const TokenLoader loader(file_of(tokens), SampleOrder(Kind::sequential, 1, 0, samples_in(5, 2)), 2);
    std::vector<std::int32_t> inputs(4), targets(4);
    try {
      loader.load(0, 2, vocab, {inputs, targets});
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
  EXPECT_THROW(loader.load(0, 1, 11, {ten, five}), Error);
  EXPECT_THROW(loader.load(0, 1, 11, {five, ten}), Error);
  EXPECT_THROW(loader.load(0, 2, 11, {five, five}), Error);
}

std::vector<std::int32_t> numbers_from(std::int32_t first, std::int32_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// A source with documents of the given lengths and the tokens 0, 1, 2, …. If it has a mask, the even tokens are
/// trained.
std::shared_ptr<const TokenSource> documents_of(const std::string& prefix, const std::vector<std::int32_t>& lengths,
                                                bool mask = false) {
  MegatronWriter writer(prefix, 1000);
  std::int32_t at = 0;
  for (const std::int32_t length : lengths) {
    const std::vector<std::int32_t> tokens = numbers_from(at, length);
    std::vector<std::uint8_t> trained;
    for (const std::int32_t token : tokens) trained.push_back(token % 2 == 0);
    mask ? writer.add_document(tokens, trained) : writer.add_document(tokens);
    at += length;
  }
  writer.finish();
  return open_tokens(prefix);
}

struct Read {
  std::vector<std::int32_t> inputs, targets, first_keys;
  Read(const TokenLoader& loader, std::int64_t index, std::size_t tokens, std::int64_t sequences = 1)
      : inputs(tokens), targets(tokens), first_keys(tokens) {
    loader.load(index, sequences, 1000, {.inputs = inputs, .targets = targets, .first_keys = first_keys});
  }
};

TokenLoader loader_of(const std::shared_ptr<const TokenSource>& file, const SampleShape& shape) {
  const auto samples = std::make_shared<const TokenSamples>(file, shape);
  return TokenLoader({{.samples = samples, .order = SampleOrder(Kind::sequential, 1, 0, samples->count())}});
}

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t none = -1;

TEST_F(TokenLoaderTest, AMaskTakesTargetsAway) {
  const auto file = documents_of(directory_.path() / "masked", {5, 4}, true);
  const TokenLoader loader = loader_of(file, {.seq_len = 4});
  EXPECT_TRUE(loader.masked());
  EXPECT_EQ(Read(loader, 1, 4).inputs, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(Read(loader, 1, 4).targets, (Ids{none, 6, none, 8}));
}

TEST_F(TokenLoaderTest, DocumentsOfTheStreamAreKeptApart) {
  // Documents at 0, 3, 4, 9 and, after an empty one, 12.
  const auto file = documents_of(directory_.path() / "apart", {3, 1, 5, 3, 0, 5});
  const TokenLoader loader = loader_of(file, {.seq_len = 4, .documents = true});
  EXPECT_TRUE(loader.masked());
  const Read two(loader, 0, 8, 2);
  EXPECT_EQ(two.inputs, numbers_from(0, 8));
  EXPECT_EQ(two.targets, (Ids{1, 2, none, none, 5, 6, 7, 8}));
  EXPECT_EQ(two.first_keys, (Ids{0, 0, 0, 3, 0, 0, 0, 0}));
  EXPECT_EQ(Read(loader, 2, 4).targets, (Ids{none, 10, 11, none}));
  EXPECT_EQ(Read(loader, 2, 4).first_keys, (Ids{0, 1, 1, 1}));
  EXPECT_EQ(loader.token_positions(2), (std::vector<std::int64_t>{8, 9, 10, 11}));
}

TEST_F(TokenLoaderTest, SamplesWithoutATargetAreFound) {
  // A sample counts if read() gives it a target that is not masked.
  const auto check = [&](const std::shared_ptr<const TokenSource>& file, const SampleShape& shape) {
    const TokenSamples samples(file, shape);
    const TokenLoader loader = loader_of(file, shape);
    bool any_at_all = false;
    for (std::int64_t i = 0; i < samples.count(); ++i) {
      const Ids targets = Read(loader, i, static_cast<std::size_t>(shape.seq_len)).targets;
      const bool any = std::ranges::any_of(targets, [](std::int32_t target) { return target != none; });
      EXPECT_EQ(samples.any_target(i, 1), any) << i;
      any_at_all = any_at_all || any;
    }
    EXPECT_EQ(samples.any_target(0, samples.count()), any_at_all);
    return any_at_all;
  };
  const auto masked = documents_of(directory_.path() / "masked", {5, 4, 7, 2}, true);
  for (const bool packed : {false, true}) {
    for (const bool documents : {false, true}) {
      for (const std::int64_t seq_len : {1, 2, 4}) {
        EXPECT_TRUE(check(masked, {.seq_len = seq_len, .packed = packed, .documents = documents}));
      }
    }
  }
  const auto single = documents_of(directory_.path() / "single", std::vector<std::int32_t>(9, 1));
  EXPECT_FALSE(check(single, {.seq_len = 4, .documents = true}));
  EXPECT_TRUE(check(single, {.seq_len = 4}));
  MegatronWriter writer(directory_.path() / "silent", 1000);
  for (int d = 0; d < 5; ++d) writer.add_document(std::vector<std::int32_t>(6, 3), std::vector<std::uint8_t>(6, 0));
  writer.finish();
  const auto silent = open_tokens(directory_.path() / "silent");
  for (const bool packed : {false, true}) EXPECT_FALSE(check(silent, {.seq_len = 4, .packed = packed}));
}

TEST_F(TokenLoaderTest, PackedSamplesHoldWholeDocumentsAndPadding) {
  const auto file = documents_of(directory_.path() / "packed", {5, 3, 10, 1, 2, 4}, true);
  const TokenLoader loader = loader_of(file, {.seq_len = 5, .packed = true, .documents = true});
  EXPECT_EQ(loader.samples(), 4);
  const Read all(loader, 0, 20, 4);
  EXPECT_EQ(all.inputs, (Ids{0, 1, 2, 3, 19, 5, 6, 21, 22, 23, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0}));
  EXPECT_EQ(all.targets,
            (Ids{none, 2, none, 4, 20, 6, none, 22, none, 24, none, 10, none, 12, none, 14, none, 16, none, none}));
  EXPECT_EQ(all.first_keys, (Ids{0, 0, 0, 0, 4, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4}));
  EXPECT_EQ(loader.token_positions(3), (std::vector<std::int64_t>{13, 14, 15, 16, -1}));
}

TEST_F(TokenLoaderTest, AMixtureTakesEachSourceInItsOwnOrder) {
  const auto source = [&](const char* name, std::int32_t tokens, double weight, std::size_t number) {
    const auto file = documents_of(directory_.path() / name, {tokens});
    const auto samples = std::make_shared<const TokenSamples>(file, SampleShape{.seq_len = 4});
    return TokenLoader::Source{samples, SampleOrder(Kind::shuffled, 3, 0, samples->count(), number), weight};
  };
  const TokenLoader loader({source("a", 41, 6, 0), source("b", 41, 3, 1), source("c", 21, 1, 2)});
  EXPECT_DOUBLE_EQ(loader.weight(1), 0.3);
  const Blend blend({6, 3, 1});
  std::vector<std::vector<std::int32_t>> firsts(3);
  for (std::int64_t i = 0; i < 60; ++i) {
    const auto [number, index] = blend.at(i);
    const auto& [samples, order, weight, begin, fingerprint] = loader.sources()[number];
    const Read read(loader, i, 4);
    EXPECT_EQ(read.inputs.front(), 4 * order(index));
    firsts[number].push_back(read.inputs.front());
  }
  EXPECT_EQ(firsts[0].size(), 36u);
  EXPECT_NE(std::vector(firsts[0].begin(), firsts[0].begin() + 10),
            std::vector(firsts[1].begin(), firsts[1].begin() + 10));
  std::vector<std::int32_t> epoch(firsts[0].begin(), firsts[0].begin() + 10);
  std::ranges::sort(epoch);
  EXPECT_EQ(epoch, (Ids{0, 4, 8, 12, 16, 20, 24, 28, 32, 36}));
}

}  // namespace
}  // namespace lyceum
