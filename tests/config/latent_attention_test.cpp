#include "config/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "config/check.h"
#include "config/continuation.h"
#include "config/impossible.h"
#include "support/latent_model.h"

namespace lyceum {
namespace {

/// Returns a change that gives the model latent attention, and then changes it.
std::function<void(Config&)> latent(const std::function<void(Config&)>& change) {
  return [change](Config& config) {
    make_latent(config.model, 5);
    change(config);
  };
}

TEST(LatentAttentionConfig, ImpossibleModelsAreReported) {
  expect_each_reported({
      {latent([](Config& c) { c.model.latent.key_value_rank = 0; }),
       {"model.attention = mla without latent_attention.key_value_rank", "set latent_attention.key_value_rank"}},
      {latent([](Config& c) { c.model.latent.rope_dim = 0; }), {"mla without latent_attention.rope_dim"}},
      {latent([](Config& c) { c.model.latent.rope_dim = 3; }), {"latent_attention.rope_dim = 3 is odd"}},
      {latent([](Config& c) { c.model.latent.query_rank = -1; }), {"latent_attention.query_rank = -1: must be >= 0"}},
      {latent([](Config& c) { c.model.kv_heads = 2; }),
       {"model.kv_heads = 2 with model.attention = mla", "set model.kv_heads = 0"}},
      {latent([](Config& c) { c.model.head_dim = 64; }),
       {"model.head_dim = 64 with model.attention = mla", "rope_dim = 6 columns", "set model.head_dim = 0"}},
      {latent([](Config& c) { c.model.positions.rotary_fraction = 0.5; }),
       {"model.rotary_fraction = 0.5 with model.attention = mla", "remove model.rotary_fraction"}},
      {latent([](Config& c) { c.model.qkv_bias = true; }), {"model.qkv_bias = true with model.attention = mla"}},
      {latent([](Config& c) { c.model.o_bias = true; }), {"model.o_bias = true with model.attention = mla"}},
      {latent([](Config& c) { c.model.qk_norm = QkNormKind::head; }),
       {"model.qk_norm = head with model.attention = mla"}},
      {latent([](Config& c) { c.model.sinks = true; }), {"model.sinks = true with model.attention = mla"}},
      {latent([](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.positions.layout = RopeLayout::half;
       }),
       {"model.attention_weights = stick_breaking with model.attention = mla"}},
      {latent([](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
       }),
       {"sub_dimensions.attention = 4 with model.attention = mla", "set one or the other"}},
      {[](Config& c) { c.model.latent.rope_dim = 64; },
       {"latent_attention.rope_dim = 64 without model.attention = mla", "set latent_attention.rope_dim = 0"}},
      {[](Config& c) { c.model.latent.query_rank = 64; }, {"latent_attention.query_rank = 64 without"}},
  });
}

TEST(LatentAttentionConfig, HeadsNeedNotDivideTheHiddenWidth) {
  Config config;
  make_latent(config.model, 5);
  config.model.hidden = 250;
  EXPECT_TRUE(contradictions(config, 1).empty());
  resolve(config, 1);
  EXPECT_EQ(config.model.kv_heads, config.model.heads);
  EXPECT_EQ(config.model.head_dim, 6);
  EXPECT_TRUE(contradictions(config, 1).empty()) << "also of a resolved configuration";
}

TEST(LatentAttentionConfig, KeysWithoutEffectDoNotMatter) {
  Config config;
  resolve(config, 1);
  Config other = config;
  other.model.latent.norm_eps = 1e-5;
  EXPECT_TRUE(changes(config, other).empty());
  make_latent(config.model, 5);
  config.model.kv_heads = config.model.heads;
  config.model.head_dim = 6;
  other = config;
  other.model.latent.norm_eps = 1e-5;
  EXPECT_EQ(changes(config, other).size(), 1u);
}

/// The numbers of DeepSeek-V3, with positions scaled from 4,096 to 163,840 by yarn.
TEST(LatentAttentionConfig, ScoresAreScaled) {
  ModelConfig model;
  make_latent(model, 0);
  model.latent.nope_dim = 128;
  model.latent.rope_dim = 64;
  EXPECT_DOUBLE_EQ(latent_score_scale(model), 1 / std::sqrt(192.0));
  model.positions.scaling = RopeScalingKind::yarn;
  model.positions.factor = 40;
  model.positions.original_length = 4096;
  EXPECT_DOUBLE_EQ(latent_score_scale(model), 1 / std::sqrt(192.0)) << "without rope_mscale_all_dim";
  model.positions.mscale = model.positions.mscale_all_dim = 1;
  const double magnitude = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(latent_score_scale(model), magnitude * magnitude / std::sqrt(192.0));
  EXPECT_DOUBLE_EQ(rope_attention_factor(model.positions), 1);
}

}  // namespace
}  // namespace lyceum
