// Training with exchanges of fixed sizes (parallel.expert_exchange = bounded) gives the bits of training with counts.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/ledger.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

constexpr int bounded_steps = 2;

/// A configuration with two micro-batches of two sequences per step, or of one if there are many data ranks.
Config exchanging_config(const ParallelConfig& parallel, double capacity) {
  Config config = tiny_config();
  config.parallel = parallel;
  const int data = world_size() / (parallel.tensor * parallel.pipeline);
  config.batch.micro = data < 4 ? 2 : 1;
  config.batch.global = 2 * config.batch.micro * data;
  config.moe.expert_sizes = {5, 11, 7, 2, 16, 9, 33, 2, 8};  // ranks of expert_tensor hold a part of each
  config.moe.capacity_factor = capacity;
  return config;
}

void expect_same_bits(Config config, const std::string& name, DType type = DType::f32) {
  SCOPED_TRACE(name);
  const Trajectory counted = train(config, test_world(), bounded_steps, type);
  config.parallel.expert_exchange = ExpertExchange::bounded;
  const Trajectory bounded = train(config, test_world(), bounded_steps, type);
  for (std::size_t s = 0; s < counted.steps.size(); ++s) {
    const StepResult &a = bounded.steps[s], &b = counted.steps[s];
    EXPECT_FALSE(b.skipped);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
    EXPECT_EQ(a.update_norm, b.update_norm);
    ASSERT_EQ(a.routing.size(), b.routing.size());
    for (std::size_t layer = 0; layer < b.routing.size(); ++layer) {
      EXPECT_EQ(a.routing[layer].counts, b.routing[layer].counts);
      EXPECT_EQ(a.routing[layer].dropped, b.routing[layer].dropped);
      EXPECT_EQ(a.routing[layer].probability, b.routing[layer].probability);
    }
  }
  EXPECT_EQ(bounded.weights, counted.weights);
}

TEST(BoundedExchange, ChangesNoBitOnAnyMesh) {
  const int world = world_size();
  if (world == 1) GTEST_SKIP() << "one rank";
  const std::vector<ParallelConfig> meshes{
      {.expert = world},
      {.expert = 2, .zero = 2},
      {.expert = world, .zero = 3, .placement = PlacementKind::cost, .host_ranks = world / 2},
      {.tensor = 2, .expert = world, .zero = 1},
      {.tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true},
      {.expert = world / 2, .expert_tensor = 2, .host_ranks = world / 2},
      {.pipeline = 2, .expert = world / 2, .zero = 1, .schedule = ScheduleKind::zero_bubble},
  };
  bool again = true;  // every second mesh is also tested without a capacity
  int tested = 0;
  for (const ParallelConfig& mesh : meshes) {
    if (!contradictions(exchanging_config(mesh, 0.8), world).empty()) continue;
    const std::string name = mesh_shape(mesh).text(world);
    expect_same_bits(exchanging_config(mesh, 0.8), name + ", limited");
    tested += mesh.expert > 1;
    if (again) expect_same_bits(exchanging_config(mesh, 0), name);
    again = !again;
  }
  EXPECT_GE(tested, world < 4 ? 3 : 6) << "meshes whose ranks exchange tokens";
  if (world % 4) return;
  // Three sequences are divided among four ranks, two of which have parts of two sequences.
  Config config = exchanging_config({.tensor = 4, .expert = 4, .sequence = true}, 0.8);
  config.model.heads = 4;
  config.model.kv_heads = 4;
  config.batch.micro = 3;
  config.batch.global = 6 * (world / 4);
  expect_same_bits(config, "three sequences on four tensor ranks");
}

TEST(BoundedExchange, ChangesNoBitOfAnyModel) {
  if (world_size() == 1) GTEST_SKIP() << "one rank";
  struct Model {
    const char* name;
    std::function<void(Config&)> change;
  };
  const std::vector<Model> models{
      {"full recomputation by turns, some steps twice",
       [](Config& c) {
         c.model.recompute = Recompute::full;
         c.parallel.overlap = Overlap::batches;
         c.run.replay_every = 2;
       }},
      {"more and more experts, choices without weights, a latent width",
       [](Config& c) {
         c.run.steps = bounded_steps;
         c.moe.top_k_start = 1;
         c.moe.router = RouterKind::noisy;
         c.moe.zero_experts = c.moe.copy_experts = 2;
         c.moe.latent_hidden = 10;
       }},
      {"attention experts, a module, biases",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
         c.mtp.depth = 1;
         c.model.ffn_bias = true;
         c.model.recompute = Recompute::selective;
       }},
      {"a bias, sequences of odd lengths",
       [](Config& c) {
         c.batch.seq_len = 7;
         c.moe.router = RouterKind::sigmoid;
         c.balance = {.expert = 0.05, .bias_rate = 0.05};
       }},
      {"a token per sequence", [](Config& c) { c.batch.seq_len = c.moe.top_k = 1; }},
  };
  for (const Model& model : models) {
    Config config = exchanging_config({.expert = world_size()}, 0.8);
    model.change(config);
    expect_same_bits(config, model.name);
  }
  expect_same_bits(exchanging_config({.expert = world_size()}, 1.2), "bf16", DType::bf16);
}

/// Returns the sizes of the all-to-alls of a step, in order.
std::vector<std::int64_t> exchanges_of(Config config, ExpertExchange exchange, int step) {
  config.parallel.expert_exchange = exchange;
  TinyTraining training(config, test_world());
  training.run(0, step);
  std::vector<std::int64_t> sizes;
  Ledger& ledger = training.setup().mesh.world.ledger();
  ledger.listen([&](const LedgerEntry& entry) {
    if (std::string(entry.operation.data()) == "all_to_all") sizes.push_back(entry.bytes);
  });
  training.run_steps_only(step, 1);
  ledger.listen({});
  return sizes;
}

/// Each micro-batch sends tokens and their sums, and both again in the backward pass. Counts are a fifth exchange.
TEST(BoundedExchange, SendsNoCountsAndAsManyRowsInEveryStep) {
  if (world_size() == 1) GTEST_SKIP() << "one rank";
  const Config config = exchanging_config({.expert = world_size()}, 0.8);
  const std::vector<std::int64_t> counted = exchanges_of(config, ExpertExchange::counted, 0),
                                  bounded = exchanges_of(config, ExpertExchange::bounded, 0);
  EXPECT_EQ(bounded.size() * 5, counted.size() * 4);
  EXPECT_EQ(exchanges_of(config, ExpertExchange::bounded, 1), bounded);
}

}  // namespace
}  // namespace lyceum
