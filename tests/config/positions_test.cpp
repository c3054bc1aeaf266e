#include "config/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/continuation.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

using enum RopeScalingKind;

/// Sets a scaling with all that it needs.
void scale(Config& config, RopeScalingKind kind) {
  config.model.positions.scaling = kind;
  config.model.positions.factor = 4;
  if (kind != linear) config.model.positions.original_length = 4096;
}

TEST(ConfigProblems, impossible_positions_are_reported) {
  expect_each_reported({
      {[](Config& c) { c.model.positions.factor = 4; },
       {"model.rope_factor = 4 with model.rope_scaling = none", "set model.rope_scaling = linear or llama3 or yarn"}},
      {[](Config& c) {
         scale(c, linear);
         c.model.positions.factor = 0.99;
       },
       {"model.rope_factor = 0.99: must be in [1, 1000000]"}},
      {[](Config& c) {
         scale(c, linear);
         c.model.positions.original_length = 4096;
       },
       {"model.rope_original_length = 4096 with model.rope_scaling = linear", "remove model.rope_original_length"}},
      {[](Config& c) {
         scale(c, llama3);
         c.model.positions.original_length = 0;
       },
       {"model.rope_scaling = llama3 without model.rope_original_length"}},
      {[](Config& c) {
         scale(c, yarn);
         c.model.positions.original_length = 0;
       },
       {"model.rope_scaling = yarn without model.rope_original_length"}},
      {[](Config& c) {
         scale(c, llama3);
         c.model.positions.high_freq_factor = 1;
       },
       {"model.rope_low_freq_factor = 1 is not below model.rope_high_freq_factor = 1"}},
      {[](Config& c) {
         scale(c, llama3);
         c.model.positions.beta_fast = 16;
       },
       {"model.rope_beta_fast = 16 with model.rope_scaling = llama3: set model.rope_scaling = yarn"}},
      {[](Config& c) {
         scale(c, yarn);
         c.model.positions.low_freq_factor = 2;
       },
       {"model.rope_low_freq_factor = 2 with model.rope_scaling = yarn: set model.rope_scaling = llama3"}},
      {[](Config& c) {
         scale(c, yarn);
         c.model.positions.beta_slow = 33;
       },
       {"model.rope_beta_slow = 33 is more than model.rope_beta_fast = 32"}},
      {[](Config& c) {
         scale(c, yarn);
         c.model.rope_base = 1;
       },
       {"model.rope_base = 1 with model.rope_scaling = yarn"}},
      {[](Config& c) {
         scale(c, linear);
         c.model.positions.truncate = false;
       },
       {"model.rope_truncate = false with model.rope_scaling = linear"}},
      {[](Config& c) { c.model.positions.attention_factor = 1.5; }, {"model.rope_attention_factor = 1.5"}},
      {[](Config& c) { c.model.positions.mscale = 1; }, {"model.rope_mscale = 1"}},
      {[](Config& c) { c.model.positions.mscale_all_dim = 1; }, {"model.rope_mscale_all_dim = 1"}},
      {[](Config& c) { c.model.positions.rotary_fraction = 1.5; }, {"model.rotary_fraction = 1.5: must be in (0, 1]"}},
      {[](Config& c) { c.model.positions.rotary_fraction = 0; }, {"model.rotary_fraction = 0: must be in (0, 1]"}},
      {[](Config& c) { c.model.positions.rotary_fraction = 0.01; },
       {"model.rotary_fraction = 0.01 rotates none of the 64 columns of a head: set at least 0.0156"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         scale(c, linear);
       },
       {"model.rope_scaling = linear with model.attention_weights = stick_breaking"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.positions.rotary_fraction = 0.5;
       },
       {"model.rotary_fraction = 0.5 with model.attention_weights = stick_breaking", "remove model.rotary_fraction"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.positions.layout = RopeLayout::interleaved;
       },
       {"model.rope_layout = interleaved with model.attention_weights = stick_breaking"}},
  });
}

TEST(Positions, EveryScalingIsPossible) {
  for (const RopeScalingKind kind : {linear, llama3, yarn}) {
    Config config = sparse();
    scale(config, kind);
    config.model.head_dim = 7;  // odd, but 4 columns are rotated
    config.model.positions.rotary_fraction = 0.5;
    config.model.positions.layout = RopeLayout::interleaved;
    EXPECT_THAT(problems(config, 4), testing::IsEmpty()) << name_of(kind);
  }
}

TEST(Positions, RotatedColumnsAreRoundedAsTransformersDoes) {
  ModelConfig model;
  const auto columns = [&](std::int64_t head_dim, double fraction) {
    model.head_dim = head_dim;
    model.positions.rotary_fraction = fraction;
    return std::pair(rotary_dim(model.positions, head_dim), rotary_columns(model));
  };
  EXPECT_EQ(columns(128, 1), std::pair(128L, 128L));
  EXPECT_EQ(columns(128, 0.5), std::pair(64L, 64L));
  EXPECT_EQ(columns(128, 0.3), std::pair(38L, 38L));
  EXPECT_EQ(columns(6, 0.5), std::pair(3L, 4L));
  EXPECT_EQ(columns(10, 0.1), std::pair(1L, 2L));
  model.attention_weights = AttentionWeights::stick_breaking;
  EXPECT_EQ(rotary_columns(model), 0);
}

TEST(Positions, AttentionFactor) {
  PositionsConfig positions{.scaling = yarn, .factor = 40, .original_length = 4096};
  EXPECT_DOUBLE_EQ(rope_attention_factor(positions), 0.1 * std::log(40) + 1);
  positions.mscale = 0.7;
  EXPECT_DOUBLE_EQ(rope_attention_factor(positions), 0.1 * std::log(40) + 1) << "one of the two alone has no effect";
  positions.mscale_all_dim = 0.7;
  EXPECT_EQ(rope_attention_factor(positions), 1) << "DeepSeek-V2";
  positions.mscale_all_dim = 1.4;
  EXPECT_DOUBLE_EQ(rope_attention_factor(positions), (0.07 * std::log(40) + 1) / (0.14 * std::log(40) + 1));
  positions.attention_factor = 1.25;
  EXPECT_EQ(rope_attention_factor(positions), 1.25);
  positions = {.scaling = yarn, .factor = 1, .original_length = 4096};
  EXPECT_EQ(rope_attention_factor(positions), 1);
  EXPECT_EQ(rope_attention_factor({.scaling = llama3, .factor = 8, .original_length = 4096}), 1);
}

TEST(Positions, AScalingThatChangesNothingIsNone) {
  for (const RopeScalingKind kind : {none, linear, llama3, yarn}) {
    PositionsConfig positions{.scaling = kind, .factor = 1, .original_length = 100, .rotary_fraction = 0.5};
    simplify_positions(positions);
    EXPECT_EQ(positions.scaling, none);
    EXPECT_EQ(positions.original_length, 0);
    EXPECT_EQ(positions.rotary_fraction, 0.5);
  }
  PositionsConfig positions{.scaling = yarn, .factor = 1, .original_length = 100, .attention_factor = 2};
  simplify_positions(positions);
  EXPECT_EQ(positions.scaling, yarn);
}

TEST(Positions, ScaledFrequenciesAreAnotherModel) {
  Config before = sparse(), now = sparse();
  scale(now, linear);
  resolve(before, 1);
  resolve(now, 1);
  const std::vector<Change> found = changes(before, now);
  ASSERT_EQ(found.size(), 2u);
  for (const Change& change : found) EXPECT_EQ(change.role, KeyRole::identity) << change.key;
  now.model.positions.factor = 1;
  EXPECT_THAT(changes(before, now), testing::IsEmpty());
}

}  // namespace
}  // namespace lyceum
