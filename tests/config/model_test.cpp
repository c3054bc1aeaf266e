#include "config/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

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
      {[](Config& c) { c.model.layers = 0; }, {"model.layers = 0: must be in [1, 10000]"}},
      {[](Config& c) { c.model.vocab = -3; }, {"model.vocab = -3: must be >= 2"}},
      {[](Config& c) { c.model.init_std = std::numeric_limits<double>::quiet_NaN(); }, {"model.init_std = nan"}},
      {[](Config& c) { c.batch.seq_len = 0; }, {"batch.seq_len = 0: must be >= 1"}},
      {[](Config& c) { c.model.vocab = std::int64_t{1} << 40; }, {"model.vocab = 1099511627776: must be at most"}},
  });
}

}  // namespace
}  // namespace lyceum
