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
#include "core/random.h"
#include "io/data/tokens/data_sources.h"
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
  loader.load(1, 2, 14, {inputs, targets});
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11, 12}));
  loader.load(2, 2, 14, {inputs, targets});  // wraps
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

std::vector<std::int32_t> numbers_from(std::int32_t first, std::int32_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Documents of these lengths, of tokens 0, 1, 2, …; those whose number is even are trained, where there is a mask.
std::shared_ptr<const TokenFile> documents_of(const std::string& prefix, const std::vector<std::int32_t>& lengths,
                                              bool mask = false) {
  TokenFileWriter writer(prefix, 1000);
  std::int32_t at = 0;
  for (const std::int32_t length : lengths) {
    const std::vector<std::int32_t> tokens = numbers_from(at, length);
    std::vector<std::uint8_t> trained;
    for (const std::int32_t token : tokens) trained.push_back(token % 2 == 0);
    mask ? writer.add_document(tokens, trained) : writer.add_document(tokens);
    at += length;
  }
  writer.finish();
  return std::make_shared<const TokenFile>(prefix);
}

struct Read {
  std::vector<std::int32_t> inputs, targets, first_keys;
  Read(const TokenLoader& loader, std::int64_t index, std::size_t tokens, std::int64_t sequences = 1)
      : inputs(tokens), targets(tokens), first_keys(tokens) {
    loader.load(index, sequences, 1000, {.inputs = inputs, .targets = targets, .first_keys = first_keys});
  }
};

TokenLoader loader_of(const std::shared_ptr<const TokenFile>& file, const SampleShape& shape) {
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
  EXPECT_EQ(loader.places(2), (std::vector<std::int64_t>{8, 9, 10, 11}));
}

TEST_F(TokenLoaderTest, SamplesWithoutATargetAreFound) {
  // A sample counts if read() gives it a target that is not masked.
  const auto check = [&](const std::shared_ptr<const TokenFile>& file, const SampleShape& shape) {
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
  TokenFileWriter writer(directory_.path() / "silent", 1000);
  for (int d = 0; d < 5; ++d) writer.add_document(std::vector<std::int32_t>(6, 3), std::vector<std::uint8_t>(6, 0));
  writer.finish();
  const auto silent = std::make_shared<TokenFile>(directory_.path() / "silent");
  for (const bool packed : {false, true}) EXPECT_FALSE(check(silent, {.seq_len = 4, .packed = packed}));
}

TEST(PackingOf, FillsSequencesWithWholeDocuments) {
  // 4, 2, 9 (cut into 5 and 4), 0, 1 and 3 predictions.
  const std::vector<std::int64_t> begins{0, 5, 8, 18, 19, 21, 25};
  const Packing packing(begins, 5);
  EXPECT_EQ(packing.documents(), 5);
  EXPECT_EQ(packing.cut_documents(), 1);
  EXPECT_EQ(packing.predicted_tokens(), 19);
  const auto pieces = [&](std::int64_t sequence) {
    const auto of = packing.of(sequence);
    return std::vector<TokenPiece>(of.begin(), of.end());
  };
  ASSERT_EQ(packing.sequences(), 4);
  EXPECT_EQ(pieces(0), (std::vector<TokenPiece>{{0, 4}, {19, 1}}));
  EXPECT_EQ(pieces(1), (std::vector<TokenPiece>{{5, 2}, {21, 3}}));
  EXPECT_EQ(pieces(2), (std::vector<TokenPiece>{{8, 5}}));
  EXPECT_EQ(pieces(3), (std::vector<TokenPiece>{{13, 4}}));
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
  EXPECT_EQ(loader.places(3), (std::vector<std::int64_t>{13, 14, 15, 16, -1}));
}

TEST_F(TokenLoaderTest, PackingThrowsNothingAwayAndWastesLittle) {
  const Philox random(7, "lengths");
  std::vector<std::int64_t> begins{0};
  for (std::uint64_t d = 0; d < 5000; ++d) {
    begins.push_back(begins.back() + 1 + static_cast<std::int64_t>(random.below(700, d)));
  }
  const Packing packing(begins, 512);
  std::vector<TokenPiece> pieces;
  for (std::int64_t s = 0; s < packing.sequences(); ++s) {
    std::int64_t used = 0;
    for (const TokenPiece& piece : packing.of(s)) used += piece.inputs, pieces.push_back(piece);
    EXPECT_TRUE(used > 0 && used <= 512);
  }
  std::ranges::sort(pieces, {}, &TokenPiece::begin);
  std::int64_t at = 0;
  for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
    for (std::int64_t token = begins[d]; token + 1 < begins[d + 1];) {
      const TokenPiece& piece = pieces.at(static_cast<std::size_t>(at++));
      EXPECT_EQ(piece.begin, token);
      token += piece.inputs;
      EXPECT_LE(token, begins[d + 1] - 1);
    }
  }
  EXPECT_EQ(at, std::ssize(pieces));
  EXPECT_LT(packing.sequences() * 512, packing.predicted_tokens() * 51 / 50);
}

/// helpers.cpp of Megatron-LM, build_blending_indices, as it is published.
void megatron_blend(const std::vector<double>& weights, std::int64_t size, std::vector<Blend::Place>& places) {
  std::vector<std::int64_t> current_samples(weights.size(), 0);
  for (std::int64_t sample_idx = 0; sample_idx < size; ++sample_idx) {
    const volatile double sample_idx_double = std::max(static_cast<double>(sample_idx), 1.0);
    std::size_t max_error_index = 0;
    volatile double product = weights[0] * sample_idx_double;
    double max_error = product - static_cast<double>(current_samples[0]);
    for (std::size_t dataset_idx = 1; dataset_idx < weights.size(); ++dataset_idx) {
      product = weights[dataset_idx] * sample_idx_double;
      const double error = product - static_cast<double>(current_samples[dataset_idx]);
      if (error > max_error) {
        max_error = error;
        max_error_index = dataset_idx;
      }
    }
    places.push_back({max_error_index, current_samples[max_error_index]});
    current_samples[max_error_index] += 1;
  }
}

TEST(BlendOf, IsMegatrons) {
  // Of Python's floats.
  const std::string expected = "010200010001020001000102000100010200010001020001001002000100";
  const Blend three({0.7, 0.2, 0.1});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(three.at(static_cast<std::int64_t>(i)).source, static_cast<std::size_t>(expected[i] - '0')) << i;
  }
  const std::vector<double> weights{0.1, 0.35, 0.05, 0.5};
  std::vector<double> normalized = weights;
  for (double& weight : normalized) weight /= std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<Blend::Place> places;
  megatron_blend(normalized, 70000, places);
  const Blend forwards(weights), backwards(weights);
  for (std::int64_t i = 0; i < 70000; ++i) ASSERT_EQ(forwards.at(i), places[static_cast<std::size_t>(i)]) << i;
  for (const std::int64_t i : {69999, 65536, 65535, 3, 40000}) {
    EXPECT_EQ(backwards.at(i), places[static_cast<std::size_t>(i)]) << i;
  }
  EXPECT_THROW(Blend({1, 0}), Error);
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
    const auto& [samples, order, weight] = loader.sources()[number];
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

TEST_F(TokenLoaderTest, SourcesAreReadFromAText) {
  using Sources = std::vector<DataSource>;
  const auto of = [](const std::string& text) { return data_sources("data.train", text); };
  EXPECT_EQ(of(""), Sources{});
  EXPECT_EQ(of("data/a"), (Sources{{"data/a"}}));
  EXPECT_EQ(of("0.7 a 3e-1 b"), (Sources{{"a", 0.7}, {"b", 0.3}}));
  EXPECT_EQ(of("a  b c"), (Sources{{"a"}, {"b"}, {"c"}}));
  const std::string spaced = directory_.path() / "0.5 my text";
  documents_of(spaced, {4});
  EXPECT_EQ(of(spaced), (Sources{{spaced}}));
  for (const char* const wrong : {"0.7 a b", "0.7 a 0 b", "-1 a", "1 a nan b", "0.5 a 0.5 a", "a b a", "1 a x b"}) {
    EXPECT_THROW(of(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace lyceum
