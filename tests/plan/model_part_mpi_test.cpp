#include <gtest/gtest.h>

#include "core/allocator.h"
#include "plan/model_part.h"
#include "support/model_stage.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// A configuration in which every token chooses every expert, so that routing is balanced, as plans assume.
Config counted_config() {
  Config config = tiny_config();
  config.batch = {.global = 16, .micro = 2, .seq_len = 64};
  config.moe.experts = config.moe.top_k = 8;
  config.moe.expert_sizes = {6, 10, 6, 10, 6, 10, 6, 10};
  config.moe.expert_hidden = 12;
  config.model.ffn_hidden = 36;
  config.balance = {};
  return config;
}

/// Returns the bytes that a forward pass keeps in a model with this number of layers.
std::int64_t held(Config config, const RunSetup& setup, std::int64_t layers, std::int64_t dense) {
  config.model.layers = layers;
  config.model.first_dense_layers = dense;
  Transformer model(config, setup.stream, setup.mesh,
                    config.run.precision == Precision::bf16 ? DType::bf16 : DType::f32, false);
  model.initialize(1);
  TokenBatch batch = random_batch(setup.stream, config, 0);
  batch.step = Tensor::zeros(setup.stream, DType::f64, {1}, MemoryKind::buffers);
  Tape tape(setup.stream);
  const Transformer::Losses losses = model.forward(tape, batch);
  std::vector<Tape::Seed> seeds;
  for (const auto& [layer, loss] : losses.layers) seeds.push_back(tape.seed(loss.value, 1));
  return static_cast<std::int64_t>(
      memory_of(setup.stream).use().in_use[static_cast<std::size_t>(MemoryKind::activations)]);
}

void expect_counted(Config config, const std::string& name) {
  ProcessGroup world = test_world();
  resolve(config, world.size());
  require_none(problems(config, world.size()));
  const auto setup = make_setup(std::move(world), mesh_shape(config.parallel));
  const MeshRank mesh_rank = MeshRank::of(config.parallel, setup->mesh.world.size(), setup->mesh.world.rank());
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    double before = 1e30;
    for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
      SCOPED_TRACE(name + ", " + name_of(precision) + ", " + name_of(mode));
      config.run.precision = precision;
      config.model.recompute = mode;
      const std::int64_t sparse = held(config, *setup, 3, 1) - held(config, *setup, 2, 1);
      const std::int64_t dense = held(config, *setup, 3, 2) - held(config, *setup, 2, 1);
      config.model.first_dense_layers = 2;
      ModelParts parts;
      EXPECT_EQ(static_cast<double>(sparse), parts.block(config, mesh_rank, 2).activations.saved);
      EXPECT_EQ(static_cast<double>(dense), parts.block(config, mesh_rank, 1).activations.saved);
      EXPECT_LT(static_cast<double>(sparse), before);
      before = static_cast<double>(sparse);
    }
  }
}

TEST(ModelParts, BlocksKeepWhatForwardHolds) {
  const int world = test_world().size(), two = std::min(world, 2);
  Config config = counted_config();
  config.parallel.expert = std::min(world, 4);
  expect_counted(config, "experts");
  config.moe.shared_experts = 0;
  config.moe.gates = Gates::renormalized;
  expect_counted(config, "no shared experts");
  config.balance = {
      .expert = 0.05, .device = 0.02, .device_groups = 2, .scope = BalanceScope::sequence, .z_loss = 0.01};
  expect_counted(config, "balance losses");
  config.balance = {.expert = 0, .device = 0, .device_groups = 0, .scope = BalanceScope::batch, .z_loss = 0.01};
  expect_counted(config, "z-loss alone");
  config.balance = {.scope = BalanceScope::batch, .mutual_information = 0.1};
  config.moe.capacity_factor = 1;  // capacity for all choices
  expect_counted(config, "information, limited");
  config.parallel.expert_exchange = ExpertExchange::bounded;
  config.moe.capacity_factor = 0.7;
  if (world > 1) expect_counted(config, "bounded");  // one rank exchanges nothing, and keeps fewer rows if choices drop
  config.parallel.expert_exchange = ExpertExchange::counted;
  config.moe.capacity_factor = 0;
  config.batch.seq_len = 13;  // padded segments, and ranks with different numbers of tokens
  expect_counted(config, "odd");
  config.parallel.placement = PlacementKind::cost;
  expect_counted(config, "odd, by cost");
  Config mlp = counted_config();
  mlp.moe.router = RouterKind::mlp;
  mlp.moe.router_hidden = 10;
  mlp.parallel.expert = two;
  expect_counted(mlp, "mlp router");
  mlp.balance.device_groups = 4;
  mlp.moe.group_limit = 4;
  expect_counted(mlp, "groups");
  for (const bool sequence : {false, true}) {
    for (const std::int64_t shared : {0, 1}) {
      Config cut = counted_config();
      cut.moe.shared_experts = shared;
      cut.parallel.tensor = cut.parallel.expert_tensor = two;
      cut.parallel.expert = std::max(world / 2, 1);
      cut.parallel.sequence = sequence;
      if (shared) cut.balance.expert = 0.05;
      expect_counted(cut, sequence ? "tensor, sequence" : "tensor");
      cut.batch.seq_len = 13;
      expect_counted(cut, sequence ? "odd tensor, sequence" : "odd tensor");
      cut.model.qkv_bias = true;
      cut.model.qk_norm = sequence ? QkNormKind::head : QkNormKind::all;
      cut.moe.shared_gate = shared > 0;
      expect_counted(cut, sequence ? "normed heads" : "normed tokens");
      cut.model.o_bias = cut.model.ffn_bias = cut.moe.router_bias = true;
      cut.model.ffn = Activation::clamped_swiglu;
      expect_counted(cut, sequence ? "biases, sequence" : "biases");
    }
  }
}

/// The bytes kept by the head are found by comparing models with different vocabularies and chunks.
TEST(ModelParts, OutputsKeepWhatForwardHolds) {
  const int world = test_world().size();
  for (const bool sequence : {false, true}) {
    Config config = counted_config();
    config.parallel.tensor = std::min(world, 2);
    config.parallel.sequence = sequence;
    ProcessGroup all = test_world();
    resolve(config, all.size());
    const auto setup = make_setup(std::move(all), {.tensor = config.parallel.tensor});
    const MeshRank mesh_rank = MeshRank::of(config.parallel, world, setup->mesh.world.rank());
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      config.run.precision = precision;
      const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
      const auto both = [&](std::int64_t vocab, std::int64_t chunk) {
        Config with = config;
        with.model.vocab = vocab;
        with.model.loss_chunk = chunk;
        return std::pair(static_cast<double>(held(with, *setup, 2, 1)),
                         ModelParts().output(with, mesh_rank).activations.saved);
      };
      const auto [held_first, first] = both(61, 0);
      for (const std::int64_t vocab : {61, 100}) {
        for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{1}, tokens - 1, tokens}) {
          SCOPED_TRACE(std::to_string(vocab) + " words, chunks of " + std::to_string(chunk) + ", " +
                       name_of(precision));
          const auto [held, planned] = both(vocab, chunk);
          EXPECT_EQ(held - held_first, planned - first);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
