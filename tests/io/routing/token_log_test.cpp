#include "io/routing/token_log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "io/routing/difficult.h"
#include "kernels/cross_entropy.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

/// The contents of a token log in memory; the choices of each layer are [tokens, k].
struct Tokens {
  std::vector<float> losses;
  std::vector<TokenLogLayer> layers{};
  std::vector<std::vector<std::int32_t>> chosen{};
  std::int32_t first_target = 0;  // the others follow it

  std::int64_t count() const { return std::ssize(losses); }
  template <class T>
  std::vector<T> from(T first) const {
    std::vector<T> numbers(losses.size());
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }
};

void write(const std::filesystem::path& file, const Tokens& tokens, std::int64_t step = 7) {
  TokenLog log(
      file, {.checkpoint = "step", .data = "tokens", .step = step, .tokens = tokens.count(), .layers = tokens.layers});
  log.write_tokens(0, tokens.from<std::int64_t>(100), tokens.from<std::int32_t>(0),
                   tokens.from<std::int32_t>(tokens.first_target));
  log.write_losses(0, tokens.losses);
  for (std::size_t l = 0; l < tokens.layers.size(); ++l) {
    log.write_choices(l, 0, tokens.chosen[l], std::vector<float>(tokens.chosen[l].size(), 0.5f));
  }
  log.finish();
}

class TokenLogTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  std::filesystem::path a_ = directory_.path() / "a.h5", b_ = directory_.path() / "b.h5";
};

TEST_F(TokenLogTest, HoldsWhatWasWrittenInAnyOrder) {
  const std::vector<TokenLogLayer> layers{{{1}, 2, {8, 16, 24}}, {{2, Site::attention}, 1, {4, 4}}};
  {
    TokenLog log(a_, {.checkpoint = "step", .data = "tokens", .step = 7, .tokens = 3, .layers = layers});
    log.write_losses(1, std::vector<float>{2, 3});
    log.write_choices(0, 2, std::vector<std::int32_t>{1, 0}, std::vector<float>{0.7f, 0.1f});
    log.write_choices(0, 0, std::vector<std::int32_t>{0, 2, 2, 1}, std::vector<float>{0.5f, 0.4f, 0.3f, 0.2f});
    log.write_choices(1, 0, std::vector<std::int32_t>{1, 0, 1}, std::vector<float>{1, 1, 1});
    log.write_choices(1, 3, std::vector<std::int32_t>{}, std::vector<float>{});  // as from a rank without tokens
    log.write_tokens(0, std::vector<std::int64_t>{50, 51, 52}, std::vector<std::int32_t>{5, 6, 7},
                     std::vector<std::int32_t>{6, 7, 8});
    expect_failure([&] { log.finish(); }, "2 of 3 tokens have losses");
    EXPECT_FALSE(std::filesystem::exists(a_));
    log.write_losses(0, std::vector<float>{1});
    log.finish();
  }
  const TokenLogFile file(a_);
  EXPECT_EQ(file.tokens(), 3);
  EXPECT_EQ(file.step(), 7);
  EXPECT_EQ(file.layers(), layers);
  EXPECT_EQ(file.losses({1, 2}), (std::vector<float>{2, 3}));
  EXPECT_EQ(file.chosen(0, {1, 2}), (std::vector<std::int32_t>{2, 1, 1, 0}));
  EXPECT_EQ(file.chosen(1, {0, 3}), (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_EQ(file.identity({1, 1}), (std::array<std::vector<std::int64_t>, 3>{{{51}, {6}, {7}}}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(TokenLogTest, AnEvaluationThatFailsLeavesTheOldFile) {
  write(a_, {.losses = {1}});
  { TokenLog log(a_, {.checkpoint = "", .data = "", .tokens = 2}); }
  EXPECT_EQ(TokenLogFile(a_).tokens(), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

// Six tokens, with numbers computed by hand. Both layers have experts of width 10, 20 and 60 (mean 30), in different
// orders.
TEST_F(TokenLogTest, DifficultTokensByHand) {
  write(a_, {.losses = {1, 3, 2, 5, 4, 3}});  // mean 3
  write(b_,
        {.losses = {2, 1, 2, 4, 2, 4},
         .layers = {{{0}, 2, {10, 20, 60}}, {{3, Site::attention}, 1, {999, 1}}, {{3}, 1, {60, 10, 20}}},
         .chosen = {{0, 1, 0, 1, 0, 1, 2, 0, 1, 2, 2, 0}, {0, 0, 0, 0, 0, 0}, {1, 1, 1, 0, 0, 2}}},
        9);
  const DifficultTokens found = difficult_tokens(TokenLogFile(a_), TokenLogFile(b_), {2.5, 3, 99});
  EXPECT_EQ(found.tokens, 6);
  EXPECT_EQ(found.a.step, 7);
  EXPECT_EQ(found.b.step, 9);
  EXPECT_DOUBLE_EQ(found.a.loss, 3);
  EXPECT_DOUBLE_EQ(found.b.loss, 2.5);
  ASSERT_EQ(found.reductions.size(), 3u);
  EXPECT_EQ(found.reductions[0].threshold, 99);  // sorted in descending order; no token is above it
  EXPECT_EQ(found.reductions[0].tokens, 0);
  EXPECT_TRUE(std::isnan(found.reductions[0].reduction()));
  EXPECT_EQ(found.reductions[1].tokens, 2);  // the losses 5 and 4; a loss of 3 is not above 3
  EXPECT_DOUBLE_EQ(found.reductions[1].loss_a, 4.5);
  EXPECT_DOUBLE_EQ(found.reductions[1].reduction(), 1.5);
  EXPECT_EQ(found.reductions[2].tokens, 4);
  EXPECT_DOUBLE_EQ(found.reductions[2].reduction(), (15 - 11) / 4.0);
  for (const DifficultTokens::Width& width : found.widths) EXPECT_EQ(width.choices, 0);

  const DifficultTokens two = difficult_tokens(TokenLogFile(a_), TokenLogFile(b_), {3});
  ASSERT_EQ(two.widths.size(), 3u);  // 60, 20, 10
  const auto expect = [](const DifficultTokens::Width& width, std::int64_t wide, std::int64_t experts,
                         const std::array<std::int64_t, 4>& counts) {
    EXPECT_EQ(width.width, wide);
    EXPECT_EQ(width.experts, experts);
    EXPECT_EQ((std::array{width.choices, width.first, width.all_choices, width.all_first}), counts) << wide;
  };
  expect(two.widths[0], 60, 2, {4, 3, 5, 4});
  expect(two.widths[1], 20, 2, {1, 1, 5, 2});
  expect(two.widths[2], 10, 2, {1, 0, 8, 6});
  expect(two.sum_of(1), 0, 2, {4, 3, 5, 4});
  expect(two.sum_of(-1), 0, 4, {2, 1, 13, 8});
  ASSERT_EQ(two.layers.size(), 3u);
  EXPECT_EQ(two.layers[0].tokens, (std::vector<std::int64_t>{1, 1, 0}));
  EXPECT_EQ(two.layers[1].tokens, (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(two.layers[2].tokens, (std::vector<std::int64_t>{2, 0, 0}));
  EXPECT_EQ(two.layers[2].id, MixtureId{3});

  const auto json = nlohmann::json::parse(difficult_json(found));
  EXPECT_TRUE(json["loss_reduction"][0]["reduction"].is_null());
  EXPECT_EQ(json["loss_reduction"][1]["reduction"], 1.5);
  EXPECT_EQ(json["widths"][0]["all_choices"], 5);
  EXPECT_EQ(nlohmann::json::parse(difficult_json(two))["narrower"]["choices"], 2);
  const std::string text = difficult_text(two, true);
  EXPECT_THAT(text, testing::ContainsRegex("layer3 top0 +2 +0 +0"));
  EXPECT_THAT(text, testing::ContainsRegex("\n *60 +2 +4 +66.7 % +27.8 % +3 +75.0 % +33.3 %\n"));
  EXPECT_THAT(difficult_text(found, false), testing::ContainsRegex("\n +99 +0 +0.0 % +- +- +-\n"));
}

TEST_F(TokenLogTest, TokensWhoseTargetDoesNotCountAreLeftOut) {
  const std::int32_t first_target = no_target;  // so only that of the first token does not count
  write(a_, {.losses = {9, 4, 2}, .first_target = first_target});
  write(b_, {.losses = {9, 3, 1}, .layers = {{{0}, 1, {10, 20}}}, .chosen = {{0, 1, 0}}, .first_target = first_target});
  const DifficultTokens found = difficult_tokens(TokenLogFile(a_), TokenLogFile(b_), {-1});
  EXPECT_EQ(found.tokens, 2);
  EXPECT_DOUBLE_EQ(found.a.loss, 3);
  EXPECT_EQ(found.reductions[0].tokens, 2);
  EXPECT_DOUBLE_EQ(found.reductions[0].loss_b, 2);
  EXPECT_EQ(found.widths[0].all_choices, 1);
  EXPECT_EQ(found.widths[1].all_choices, 1);
}

TEST_F(TokenLogTest, ThresholdsFollowTheMeanLossWhereNoneAreGiven) {
  write(a_, {.losses = {1, 3}});
  write(b_, {.losses = {1, 2}});
  const DifficultTokens found = difficult_tokens(TokenLogFile(a_), TokenLogFile(b_), {});
  ASSERT_EQ(found.reductions.size(), 6u);
  EXPECT_DOUBLE_EQ(found.reductions.front().threshold, 4);
  EXPECT_DOUBLE_EQ(found.reductions.back().threshold, 2);
  EXPECT_EQ(found.reductions.back().tokens, 1);
  EXPECT_THAT(difficult_text(found, false), testing::HasSubstr("B has no routed experts"));
}

TEST_F(TokenLogTest, RefusesOtherDataAndOtherFiles) {
  write(a_, {.losses = {1, 3, 2}});
  write(b_, {.losses = {1, 2}});
  const auto compare = [&] { difficult_tokens(TokenLogFile(a_), TokenLogFile(b_), {}); };
  expect_bad_input(compare, "a.h5 has 3 tokens, ");
  write(b_, {.losses = {1, 2, 3}, .first_target = 1});
  expect_bad_input(compare, "are for different data: the token of row 0 differs");
  write(b_, {.losses = {1, std::numeric_limits<float>::quiet_NaN(), 3}});
  expect_bad_input(compare, "b.h5: the loss of row 1 is not finite");
  write(b_, {.losses = {1, 2, 3}, .layers = {{{0}, 1, {8, 8}}}, .chosen = {{0, 1, 2}}});
  expect_bad_input(compare, "b.h5: /layers/000/chosen names an expert 2, but there are only 2");
  std::filesystem::remove(b_);
  expect_bad_input(compare, "b.h5: no such file");
  hdf5::File::create(b_).close();
  expect_bad_input(compare, "b.h5: is not a token log");
  std::ofstream(b_) << "no HDF5";
  expect_bad_input(compare, "b.h5");
}

}  // namespace
}  // namespace lyceum
