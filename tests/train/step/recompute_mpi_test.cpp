#include <gtest/gtest.h>

#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// Expects that weights and moments, and hence gradients, have the same bits with every mode of recomputation, after
/// two steps of several micro-batches.
void expect_no_difference(Config config, DType type, const std::string& name) {
  config.batch.micro = 1;
  config.moe.expert_sizes = {5, 11, 7, 4, 16, 9, 33, 6, 8};
  config.model.recompute = Recompute::none;
  const Trajectory kept = train(config, test_world(), 2, type);
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    config.model.recompute = mode;
    const Trajectory made_again = train(config, test_world(), 2, type);
    EXPECT_EQ(made_again.weights, kept.weights) << name << ' ' << name_of(mode);
    for (std::size_t s = 0; s < kept.steps.size(); ++s) {
      EXPECT_FALSE(kept.steps[s].skipped);
      EXPECT_EQ(made_again.steps[s].loss, kept.steps[s].loss) << name << ' ' << name_of(mode);
      EXPECT_EQ(made_again.steps[s].grad_norm, kept.steps[s].grad_norm) << name << ' ' << name_of(mode);
      EXPECT_EQ(made_again.steps[s].routing[0].counts, kept.steps[s].routing[0].counts) << name << ' ' << name_of(mode);
      EXPECT_EQ(made_again.steps[s].routing[0].dropped, kept.steps[s].routing[0].dropped)
          << name << ' ' << name_of(mode);
    }
  }
}

TEST(Recomputation, GivesTheSameBitsWithExpertsOnManyRanks) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Config config = tiny_config();
    config.parallel.expert = world_size();
    expect_no_difference(config, type, "ep");
    config.moe.shared_experts = 0;
    config.moe.gates = Gates::renormalized;
    config.model.tie_embeddings = true;
    expect_no_difference(config, type, "ep, no shared experts");
    config.batch.seq_len = config.moe.top_k = 1;  // some ranks get no rows
    expect_no_difference(config, type, "ep, few tokens");
  }
}

TEST(Recomputation, GivesTheSameBitsOnTensorMeshes) {
  const int world = world_size(), two = std::min(world, 2);
  for (const bool sequence : {false, true}) {
    for (const int expert_tensor : {1, two}) {
      Config config = tiny_config();
      config.parallel.tensor = two;
      config.parallel.expert_tensor = expert_tensor;
      config.parallel.expert = std::max(world / two, 1);
      config.parallel.sequence = sequence;
      expect_no_difference(config, DType::f32, "etp " + std::to_string(expert_tensor) + (sequence ? ", sequence" : ""));
    }
  }
}

TEST(Recomputation, GivesTheSameBitsWhereExpertsHaveLimitedRoom) {
  const int world = world_size(), two = std::min(world, 2);
  for (const bool tensor : {false, true}) {
    Config config = tiny_config();
    config.run.steps = 2;
    config.moe.top_k_start = 2;
    config.moe.capacity_factor = 0.7;
    config.moe.router = RouterKind::noisy;
    config.parallel.tensor = tensor ? two : 1;
    config.parallel.sequence = tensor;
    config.parallel.expert = tensor ? std::max(world / two, 1) : world;
    expect_no_difference(config, DType::f32, tensor ? "tp, limited" : "ep, limited");
  }
}

TEST(Recomputation, GivesTheSameBitsWithShardedValuesAndThroughThePipeline) {
  const int world = world_size();
  Config config = tiny_config();
  config.parallel.expert = std::max(world / 2, 1);
  config.parallel.zero = 3;
  expect_no_difference(config, DType::bf16, "ZeRO 3");
  if (world < 2) return;
  config.parallel.pipeline = 2;
  config.parallel.schedule = ScheduleKind::zero_bubble;
  config.parallel.zero = 1;
  expect_no_difference(config, DType::f32, "pipeline");
}

TEST(Recomputation, GivesTheSameBitsOfAttentionExperts) {
  const int world = world_size();
  Config config = tiny_config();
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
  config.model.ffn = Activation::gelu;
  config.parallel.zero = 3;
  expect_no_difference(config, DType::bf16, "attention experts");
  config.parallel = {.tensor = std::min(world, 2), .expert = std::max(world / 2, 1), .sequence = true};
  expect_no_difference(config, DType::f32, "attention experts, tp");
}

TEST(Recomputation, GivesTheSameBitsOfADenseModel) {
  Config config = tiny_config();
  config.batch.micro = 1;
  config.moe = {};
  config.balance = {};
  config.parallel.tensor = std::min(world_size(), 2);
  const Trajectory kept = train(config, test_world(), 2);
  config.model.recompute = Recompute::selective;
  EXPECT_EQ(train(config, test_world(), 2).weights, kept.weights);
}

TEST(Recomputation, GivesTheSameBitsWithNormedProjections) {
  Config config = tiny_config();
  config.model.qkv_bias = true;
  config.model.qk_norm = QkNormKind::head;
  config.moe.shared_gate = true;
  expect_no_difference(config, DType::bf16, "normed heads");
  config.model.qk_norm = QkNormKind::all;
  config.parallel.tensor = std::min(world_size(), 2);
  config.parallel.zero = 3;
  expect_no_difference(config, DType::f32, "normed tokens, tp");
  config.model.attention_weights = AttentionWeights::stick_breaking;
  config.parallel.sequence = config.parallel.tensor > 1;
  expect_no_difference(config, DType::f32, "normed tokens, sticks");
}

TEST(Recomputation, GivesTheSameBitsWithBiases) {
  Config config = tiny_config();
  config.model.qkv_bias = config.model.o_bias = config.model.ffn_bias = true;
  config.model.ffn = Activation::clamped_swiglu;
  config.model.swiglu_limit = 0.3;
  config.moe.router_bias = true;
  expect_no_difference(config, DType::bf16, "biases");
  config.parallel.tensor = config.parallel.expert_tensor = std::min(world_size(), 2);
  config.parallel.sequence = config.parallel.tensor > 1;
  config.parallel.zero = 3;
  expect_no_difference(config, DType::f32, "biases, tp");
}

TEST(Recomputation, GivesTheSameBitsWithWindowsAndSinks) {
  Config config = tiny_config();
  config.model.window = 4;
  config.model.window_layers = {1, 0};
  config.model.sinks = true;
  expect_no_difference(config, DType::bf16, "windows and sinks");
  config.parallel.tensor = std::min(world_size(), 2);
  config.parallel.sequence = config.parallel.tensor > 1;
  config.parallel.zero = 3;
  expect_no_difference(config, DType::f32, "windows and sinks, tp");
}

TEST(Recomputation, GivesTheSameBitsWithStickBreaking) {
  Config config = tiny_config();
  config.model.attention_weights = AttentionWeights::stick_breaking;
  config.parallel.tensor = std::min(world_size(), 2);
  config.parallel.sequence = config.parallel.tensor > 1;
  expect_no_difference(config, DType::bf16, "sticks");
}

}  // namespace
}  // namespace lyceum
