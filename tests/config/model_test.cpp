#include "config/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

TEST(ConfigProblems, impossible_models_are_reported) {
  expect_each_reported({
      {[](Config& c) { c.model.hidden = 250; }, {"model.heads = 4 does not divide model.hidden = 250"}},
      {[](Config& c) { c.model.hidden = 252; }, {"heads have the odd width 63", "model.head_dim", "RoPE"}},
      {[](Config& c) { c.model.head_dim = 63; }, {"heads have the odd width 63"}},
      {[](Config& c) { c.model.kv_heads = 3; }, {"model.kv_heads = 3 does not divide model.heads = 4"}},
      {[](Config& c) { c.model.kv_heads = 8; }, {"model.kv_heads = 8 does not divide model.heads = 4"}},
      {[](Config& c) { c.model.first_dense_layers = 5; }, {"model.first_dense_layers = 5", "model.layers = 4"}},
      {[](Config& c) { c.model.head_dim = 5; }, {"heads have the odd width 5 (model.head_dim)"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.rope_base = 500000;
       },
       {"model.rope_base = 500000 with model.attention_weights = stick_breaking", "remove model.rope_base"}},
      {[](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts.count = 4;
         c.model.qkv_bias = true;
       },
       {"model.qkv_bias = true with model.attention = moa", "set one or the other"}},
      {[](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts.count = 4;
         c.model.qk_norm = QkNormKind::head;
       },
       {"model.qk_norm = head with model.attention = moa", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
         c.model.qkv_bias = true;
       },
       {"sub_dimensions.attention = 4 with model.qkv_bias = true", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
         c.model.qk_norm = QkNormKind::all;
       },
       {"sub_dimensions.attention = 4 with model.qk_norm = all", "set one or the other"}},
      {[](Config& c) { c.model.window = -1; }, {"model.window = -1: must be >= 0"}},
      {[](Config& c) {
         c.batch.seq_len = 64;
         c.model.window = 65;
       },
       {"model.window = 65 is more than batch.seq_len = 64", "set model.window = 0"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.window = 8;
       },
       {"model.window = 8 with model.attention_weights = stick_breaking", "set model.window = 0"}},
      {[](Config& c) {
         c.model.window_layers = {1, 0};
       },
       {"model.window_layers without a window", "set model.window"}},
      {[](Config& c) {
         c.model.window = 8;
         c.model.window_layers = {1, 0, 1, 0, 1};
       },
       {"model.window_layers has 5 numbers for model.layers = 4"}},
      {[](Config& c) {
         c.model.window = 8;
         c.model.window_layers = {1, 2};
       },
       {"model.window_layers = 1,2: 2 must be in [0, 1]"}},
      {[](Config& c) {
         c.model.window = 8;
         c.model.window_layers = {0, 0};
       },
       {"model.window_layers has no 1"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.sinks = true;
       },
       {"model.sinks = true with model.attention_weights = stick_breaking"}},
      {[](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts.count = 4;
         c.model.sinks = true;
       },
       {"model.sinks = true with model.attention = moa"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
         c.model.sinks = true;
       },
       {"model.sinks = true with sub_dimensions.attention = 4"}},
      {[](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts.count = 4;
         c.model.o_bias = true;
       },
       {"model.o_bias = true with model.attention = moa", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
         c.model.o_bias = true;
       },
       {"model.o_bias = true with sub_dimensions.attention = 4", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.ffn = 4;
         c.model.ffn_bias = true;
       },
       {"model.ffn_bias = true with sub_dimensions.ffn = 4", "set one or the other"}},
      {[](Config& c) { c.model.swiglu_limit = 0; }, {"model.swiglu_limit = 0: must be in (0, 1000000]"}},
      {[](Config& c) { c.model.swiglu_alpha = -1; }, {"model.swiglu_alpha = -1: must be in (0, 1000]"}},
      {[](Config& c) { c.model.layers = 0; }, {"model.layers = 0: must be in [1, 10000]"}},
      {[](Config& c) { c.model.vocab = -3; }, {"model.vocab = -3: must be >= 2"}},
      {[](Config& c) { c.model.init_std = std::numeric_limits<double>::quiet_NaN(); }, {"model.init_std = nan"}},
      {[](Config& c) { c.batch.seq_len = 0; }, {"batch.seq_len = 0: must be >= 1"}},
      {[](Config& c) { c.model.vocab = std::int64_t{1} << 40; }, {"model.vocab = 1099511627776: must be at most"}},
  });
}

TEST(Windows, BelongToLayersByAPatternThatRepeats) {
  ModelConfig model{.layers = 5};
  EXPECT_EQ(window_of(model, 3), 0);
  model.window = 7;
  EXPECT_EQ(window_of(model, 3), 7) << "all layers";
  model.window_layers = {1, 0};
  for (const std::int64_t layer : {0, 1, 2, 3, 4}) EXPECT_EQ(window_of(model, layer), layer % 2 == 0 ? 7 : 0) << layer;
}

TEST(Windows, HaveOneNotation) {
  using Layers = std::vector<std::int64_t>;
  EXPECT_EQ(shortest_window_layers({1, 1, 1}), Layers());
  EXPECT_EQ(shortest_window_layers({1, 0, 1, 0}), (Layers{1, 0}));
  EXPECT_EQ(shortest_window_layers({1, 0, 1, 0, 1}), (Layers{1, 0}));
  EXPECT_EQ(shortest_window_layers({1, 1, 0, 1, 1}), (Layers{1, 1, 0}));
  EXPECT_EQ(shortest_window_layers({0, 0, 1, 1}), (Layers{0, 0, 1, 1}));
  ModelConfig model{.layers = 4, .window = 7, .window_layers = {1, 0, 1, 0}};
  simplify_windows(model);
  EXPECT_EQ(model.window_layers, (Layers{1, 0}));
  model.window_layers = {1};
  simplify_windows(model);
  EXPECT_EQ(model.window_layers, Layers());
}

}  // namespace
}  // namespace lyceum
