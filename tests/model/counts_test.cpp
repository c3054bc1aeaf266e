#include "model/counts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/check.h"
#include "model/transformer.h"
#include "support/latent_model.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

void expect_counted(Config config) {
  config.moe.expert_sizes.clear();
  resolve(config, 1);
  const auto setup = make_setup(ProcessGroup::self(), {});
  const Transformer model(config, setup->stream, setup->mesh, DType::f32, false);
  std::int64_t built = 0;
  for (const auto& unit : model.units()) {
    for (const auto& parameter : unit->parameters()) {
      for (const ParameterSlice& slice : parameter->slices) built += slice.extent.size();
    }
  }
  const ModelCounts counts = count_model(config);
  EXPECT_EQ(counts.parameters + counts.modules.total, built);
}

TEST(ModelCounts, AreThoseOfTheModelThatIsBuilt) {
  Config config = tiny_config();
  expect_counted(config);
  config.model.tie_embeddings = true;
  expect_counted(config);
  for (const RouterKind router : {RouterKind::sigmoid, RouterKind::sqrt_softplus, RouterKind::random, RouterKind::noisy,
                                  RouterKind::mlp, RouterKind::hash, RouterKind::uniform}) {
    config.moe.router = router;
    expect_counted(config);
  }
  config.moe.zero_experts = 2;
  config.moe.copy_experts = 1;
  config.moe.latent_hidden = 10;
  expect_counted(config);
  config.model.qkv_bias = config.moe.shared_gate = true;
  for (const QkNormKind kind : {QkNormKind::head, QkNormKind::all}) {
    config.model.qk_norm = kind;
    expect_counted(config);
  }
  config.model.window = 5;
  config.model.sinks = true;
  expect_counted(config);
  config.model.o_bias = config.model.ffn_bias = true;
  expect_counted(config);
  config.moe.router = RouterKind::sigmoid;
  config.moe.router_bias = true;
  expect_counted(config);
  config.model.ffn = Activation::gelu;
  expect_counted(config);
  config.mtp.depth = 2;
  expect_counted(config);
  config.model.tie_embeddings = !config.model.tie_embeddings;
  expect_counted(config);
  config.model.qkv_bias = config.model.o_bias = config.model.sinks = false;
  config.model.qk_norm = QkNormKind::none;
  for (const std::int64_t query_rank : {0, 5}) {
    make_latent(config.model, query_rank);
    expect_counted(config);
  }
}

TEST(ModelCounts, IncludeTheLearntRatesOfDropout) {
  Config config = tiny_config();
  config.moe = {};
  config.model.dropout = {.rate = 0.1, .kind = DropoutKind::block, .block = 2};
  expect_counted(config);
  const std::int64_t without = count_model(config).parameters;
  config.model.dropout.kind = DropoutKind::concrete;
  expect_counted(config);
  EXPECT_EQ(count_model(config).parameters, without + 1 + 2 * config.model.layers);
  config.mtp.depth = 1;
  expect_counted(config);
}

/// The expected numbers were computed by hand.
TEST(ModelCounts, OfLatentAttention) {
  Config config;
  config.model = {.layers = 1, .hidden = 8, .heads = 3, .ffn_hidden = 7, .vocab = 10};
  config.batch.seq_len = 100;
  make_latent(config.model, 0);
  resolve(config, 1);
  constexpr std::int64_t rest = (7 + 2) * 8 + 3 * (4 + 5) * 7 + 8 * 3 * 5;
  EXPECT_EQ(count_block(config, 0).attention.total, 3 * (4 + 2) * 8 + rest);
  EXPECT_EQ(count_block(config, 0).norms.total, 2 * 8 + 7);
  EXPECT_EQ(count_block(config, 0).attention_flops, 100.0 * 100 * 2 * 3 * (4 + 2 + 5));
  config.model.latent.query_rank = 6;
  EXPECT_EQ(count_block(config, 0).attention.total, 6 * 8 + 3 * (4 + 2) * 6 + rest);
  EXPECT_EQ(count_block(config, 0).norms.total, 2 * 8 + 7 + 6);
}

/// The expected numbers were computed by hand. The model has hidden 8, a block of 4·8·12 + 3·8·7 + 2·8 elements and a
/// vocabulary of 10 words. A module has such a block, three norms, a projection of 8·16, and uses the head.
TEST(ModelCounts, ModulesAreCountedApart) {
  Config config;
  config.model = {.layers = 1, .hidden = 8, .heads = 3, .kv_heads = 3, .head_dim = 4, .ffn_hidden = 7, .vocab = 10};
  config.batch.seq_len = 100;
  const ModelCounts without = count_model(config);
  EXPECT_EQ(without.modules.total, 0);
  config.mtp.depth = 3;
  const ModelCounts with = count_model(config);
  constexpr std::int64_t block = 4 * 8 * 12 + 3 * 8 * 7 + 2 * 8, around = 3 * 8 + 8 * 16;
  EXPECT_EQ(with.modules.total, 3 * (block + around));
  EXPECT_EQ(with.modules.activated, 3 * (block + around));
  EXPECT_EQ(with.parameters, without.parameters);
  EXPECT_EQ(with.activated, without.activated);
  const double attention = 2.0 * 100 * 100 * (12 + 12);
  EXPECT_DOUBLE_EQ(with.flops_per_sequence - without.flops_per_sequence,
                   3 * (6.0 * (block + around + 8 * 10) * 100 + 3 * attention));
  EXPECT_DOUBLE_EQ(with.causal_flops_per_sequence - without.causal_flops_per_sequence,
                   3 * (6.0 * (block + around + 8 * 10) * 100 + 3 * attention / 2));

  config.moe.experts = 4;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 5;
  const ModelCounts sparse = count_model(config);
  EXPECT_EQ(sparse.modules.total - sparse.modules.activated, 3 * 2 * 3 * 8 * 5) << "two of four experts are not chosen";
}

/// The FLOPs of attention are linear in the window, and those of a window of the whole sequence are those of none.
TEST(ModelCounts, AttentionIsLinearInTheWindow) {
  Config config;
  config.model = {.layers = 3, .hidden = 8, .heads = 3, .kv_heads = 3, .head_dim = 4, .ffn_hidden = 7, .vocab = 10};
  config.batch.seq_len = 1000;
  const auto flops = [&](std::int64_t window) {
    config.model.window = window;
    return count_block(config, 0).attention_flops;
  };
  const auto causal = [&](std::int64_t window) {
    config.model.window = window;
    return count_block(config, 0).causal_attention_flops;
  };
  constexpr double width = 2 * (12 + 12);
  EXPECT_EQ(flops(0), 1000.0 * 1000 * width);
  EXPECT_EQ(flops(20), 1000.0 * 20 * width);
  EXPECT_EQ(flops(1000), flops(0));
  EXPECT_EQ(causal(0), 1000.0 * 500 * width);
  EXPECT_EQ(causal(1000), causal(0));
  // The first 20 queries see 1 to 20 keys, the others 20 each. The count leaves out half a pair per query, as T²/2
  // does.
  double pairs = 0;
  for (int query = 0; query < 1000; ++query) pairs += std::min(query + 1, 20);
  EXPECT_EQ(causal(20), (pairs - 20 / 2.0) * width);
  config.model.window_layers = {1, 0};
  EXPECT_EQ(count_model(config).blocks.attention_flops, (2 * 20 + 1000) * 1000.0 * width);
}

/// The expected numbers were computed by hand. One block has hidden 8, attention of width 12, and four experts of width
/// 5, of which two are used.
TEST(ModelCounts, OfModelsThatAreOnlyPlanned) {
  Config config;
  config.model = {.layers = 1, .hidden = 8, .heads = 3, .kv_heads = 3, .head_dim = 4, .ffn_hidden = 7, .vocab = 10};
  config.moe.experts = 4;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 5;
  const auto routers = [&](RouterKind kind) {
    config.moe.router = kind;
    return count_block(config, 0).routers.total;
  };
  config.moe.router_hidden = 6;
  EXPECT_EQ(routers(RouterKind::softmax), 8 * 4);
  EXPECT_EQ(routers(RouterKind::sigmoid), 8 * 4 + 4);
  EXPECT_EQ(routers(RouterKind::sqrt_softplus), 8 * 4 + 4);
  EXPECT_EQ(routers(RouterKind::random), 8 * 4);
  EXPECT_EQ(routers(RouterKind::hash), 0);
  EXPECT_EQ(routers(RouterKind::uniform), 0);
  EXPECT_EQ(routers(RouterKind::mlp), 8 * 6 + 6 * 4);
  EXPECT_EQ(routers(RouterKind::noisy), 8 * 4 + 8 * 4 + 4);

  config.moe.router = RouterKind::softmax;
  config.moe.zero_experts = 1;
  config.moe.copy_experts = 3;  // two of eight experts are chosen; four of the eight have weights
  EXPECT_EQ(count_block(config, 0).routers.total, 8 * 8);
  EXPECT_EQ(count_block(config, 0).routed.total, 4 * 3 * 8 * 5);
  EXPECT_EQ(count_block(config, 0).routed.activated, 3 * 8 * 5);
  config.moe.latent_hidden = 2;
  EXPECT_EQ(count_block(config, 0).routed.total, 4 * 3 * 2 * 5);
  EXPECT_EQ(count_block(config, 0).routed.activated, 3 * 2 * 5);
  EXPECT_EQ(count_block(config, 0).latent.total, 2 * 2 * 8);
  EXPECT_EQ(count_block(config, 0).latent.activated, 2 * 2 * 8);
  config.moe.zero_experts = config.moe.copy_experts = config.moe.latent_hidden = 0;

  config.model.ffn = Activation::clamped_swiglu;
  config.model.ffn_bias = config.model.o_bias = config.moe.router_bias = true;
  const BlockCounts biased = count_block(config, 0);
  EXPECT_EQ(biased.routed.total, 4 * (3 * 8 * 5 + 2 * 5 + 8));
  EXPECT_EQ(biased.routed.activated, 2 * (3 * 8 * 5 + 2 * 5 + 8));
  EXPECT_EQ(biased.routers.total, 8 * 4 + 4);
  EXPECT_EQ(biased.attention.total, 4 * 8 * 12 + 8);
  config.model.ffn_bias = config.model.o_bias = config.moe.router_bias = false;

  config.model.ffn = Activation::gelu;
  EXPECT_EQ(count_block(config, 0).routed.total, 4 * 2 * 8 * 5);
  EXPECT_EQ(count_block(config, 0).routed.activated, 2 * 2 * 8 * 5);
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 3, .top_k = 2, .gates = {}};
  const BlockCounts moa = count_block(config, 0);
  EXPECT_EQ(moa.attention.total, 2 * 8 * 12 + 3 * 2 * 8 * 12);
  EXPECT_EQ(moa.attention.activated, 2 * 8 * 12 + 2 * 2 * 8 * 12);
  const double pairs = 2 * 2048.0 * 2048;  // FLOPs for each element of all scores of a sequence
  config.batch.seq_len = 2048;
  EXPECT_EQ(count_block(config, 0).attention_flops, pairs * (2 * 12 + 2 * 12));
  EXPECT_EQ(count_block(config, 0).causal_attention_flops, pairs / 2 * (2 * 12 + 2 * 12));

  config.model.attention = AttentionKind::multi_head;
  config.moe = {};
  config.sub_dimensions = {.attention = 4, .ffn = 2, .active = 1, .shared = 0, .fusion_width = 2};
  const BlockCounts cut = count_block(config, 0);
  EXPECT_EQ(cut.attention.total, 4 * 8 * 12);
  EXPECT_EQ(cut.attention.activated, 8 * 12);
  EXPECT_EQ(cut.ffn.activated, 8 * 7);
  EXPECT_EQ(cut.routers.total, 8 * 4 + 8 * 2);
  EXPECT_EQ(cut.fusion.total, 2 * 2 * 8 * 2);
}

}  // namespace
}  // namespace lyceum
