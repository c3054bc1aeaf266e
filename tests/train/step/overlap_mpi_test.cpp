// Training with two overlapping micro-batches gives the bits of training without overlap.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/ledger.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

constexpr int overlap_steps = 2;

/// A configuration with three micro-batches of one sequence per step.
Config overlapping_config(const ParallelConfig& parallel) {
  Config config = tiny_config();
  config.parallel = parallel;
  config.batch.micro = 1;
  config.batch.global = 3 * world_size() / parallel.tensor;
  config.moe.expert_sizes = {5, 11, 7, 2, 16, 9, 33, 2, 8};  // ranks of expert_tensor hold a part of each
  return config;
}

struct ModelVariant {
  const char* name;
  std::function<void(Config&)> change;
};

void expect_plain_run(const Trajectory& run, const Trajectory& plain, const std::string& name) {
  ASSERT_EQ(run.steps.size(), plain.steps.size());
  for (std::size_t s = 0; s < plain.steps.size(); ++s) {
    const StepResult &a = run.steps[s], &b = plain.steps[s];
    const std::string where = name + " step " + std::to_string(s);
    EXPECT_FALSE(b.skipped) << where;
    EXPECT_EQ(a.loss, b.loss) << where;
    EXPECT_EQ(a.losses, b.losses) << where;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << where;
    EXPECT_EQ(a.weight_norm, b.weight_norm) << where;
    EXPECT_EQ(a.update_norm, b.update_norm) << where;
    ASSERT_EQ(a.routing.size(), b.routing.size()) << where;
    for (std::size_t layer = 0; layer < b.routing.size(); ++layer) {
      EXPECT_EQ(a.routing[layer].counts, b.routing[layer].counts) << where << " layer " << layer;
      EXPECT_EQ(a.routing[layer].dropped, b.routing[layer].dropped) << where << " layer " << layer;
      EXPECT_EQ(a.routing[layer].probability, b.routing[layer].probability) << where << " layer " << layer;
    }
  }
  EXPECT_EQ(run.weights, plain.weights) << name;
}

void expect_unchanged(Config config, const std::string& name, DType type = DType::f32,
                      Overlap overlap = Overlap::batches) {
  config.parallel.overlap = Overlap::none;
  if (!contradictions(config, world_size()).empty()) return;
  const Trajectory plain = train(config, test_world(), overlap_steps, type);
  config.parallel.overlap = overlap;
  expect_plain_run(train(config, test_world(), overlap_steps, type), plain, name);
}

TEST(Overlap, ChangesNoBitOnAnyMesh) {
  for (const int expert : {2, 4, 8}) {
    for (const int zero : {0, 1, 2}) {
      expect_unchanged(overlapping_config({.expert = expert, .zero = zero}),
                       "ep" + std::to_string(expert) + " zero " + std::to_string(zero));
    }
    for (const bool sequence : {false, true}) {
      expect_unchanged(overlapping_config({.tensor = 2, .expert = expert, .zero = 1, .sequence = sequence}),
                       "tp2 ep" + std::to_string(expert) + (sequence ? " sequence" : ""));
    }
    expect_unchanged(overlapping_config({.expert = expert, .expert_tensor = 2}), "etp2 ep" + std::to_string(expert));
    expect_unchanged(overlapping_config({.tensor = 2, .expert = expert, .expert_tensor = 2, .sequence = true}),
                     "tp2 etp2 ep" + std::to_string(expert));
  }
  expect_unchanged(overlapping_config({.expert = 4, .host_ranks = 2}), "ep4 on two hosts");
  expect_unchanged(overlapping_config({.expert = 8, .zero = 1, .host_ranks = 4}), "ep8 on two hosts");
  expect_unchanged(overlapping_config({}), "all experts on every rank");
  Config twice = overlapping_config({.expert = 2});
  twice.run.replay_every = 2;
  expect_unchanged(twice, "repeated passes");
}

TEST(Overlap, ChangesNoBitOfAnyModel) {
  const std::vector<ModelVariant> models{
      {"selective", [](Config& c) { c.model.recompute = Recompute::selective; }},
      {"full",
       [](Config& c) {
         c.model.recompute = Recompute::full;
         c.model.first_dense_layers = 0;
       }},
      {"tied",
       [](Config& c) {
         c.model.tie_embeddings = true;
         c.model.first_dense_layers = 2;
       }},
      {"attention experts",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
       }},
      {"no shared experts, over the batch",
       [](Config& c) {
         c.moe.shared_experts = 0;
         c.balance = {.expert = 0.05, .scope = BalanceScope::batch};
       }},
      {"over the step so far",
       [](Config& c) {
         c.balance.scope = BalanceScope::global;
         c.model.recompute = Recompute::full;
       }},
      {"a bias, a gate",
       [](Config& c) {
         c.moe.router = RouterKind::sigmoid;
         c.moe.shared_gate = true;
         c.balance = {.expert = 0.05, .bias_rate = 0.05};
       }},
      {"limited, noisy",
       [](Config& c) {
         c.run.steps = overlap_steps;
         c.moe.top_k_start = 1;
         c.moe.capacity_factor = 0.8;
         c.moe.router = RouterKind::noisy;
         c.moe.copy_experts = 2;
       }},
      {"frozen", [](Config& c) { c.optim.train_only = {"model/layers/*/mlp/experts/[12]/*"}; }},
      {"few tokens", [](Config& c) { c.batch.seq_len = c.moe.top_k = 1; }},  // some ranks get no rows
      {"two micro-batches", [](Config& c) { c.batch.global = 2 * world_size() / c.parallel.tensor; }},
  };
  const int world = world_size();
  int tensor = 1;
  for (const ModelVariant& model : models) {
    Config config = overlapping_config({.tensor = tensor, .expert = world / tensor, .sequence = tensor > 1});
    model.change(config);
    expect_unchanged(config, model.name + std::string(" tp") + std::to_string(tensor));
    tensor = tensor == 1 && world > 1 ? 2 : 1;
  }
  expect_unchanged(overlapping_config({.expert = world}), "bf16", DType::bf16);
  expect_unchanged(overlapping_config({.expert = world}), "shared", DType::f32, Overlap::shared);
}

/// Returns the all-to-alls of a step, which exchange tokens or depend on their choices, as "SIZE at LINE" in order.
/// Also checks that passes overlap exactly if they should.
std::vector<std::string> exchanges_of(Config config, Overlap overlap) {
  config.parallel.overlap = overlap;
  TinyTraining training(config, test_world());
  std::vector<std::string> called;
  Ledger& ledger = training.setup().mesh.world.ledger();
  ledger.listen([&](const LedgerEntry& entry) {
    if (std::string(entry.operation.data()) != "all_to_all") return;
    called.push_back(std::to_string(entry.size) + " at " + std::to_string(entry.line));
  });
  const StepResult result = training.run(0, 1)[0];
  ledger.listen({});
  for (std::size_t i = 0; i + 1 < result.trace.size(); ++i) {
    const auto [action, start, end] = result.trace[i];
    const TimedAction& next = result.trace[i + 1];
    const bool by_turns = overlap == Overlap::batches && config.parallel.expert > 1 &&
                          action.kind == Action::Kind::backward && next.action.kind == Action::Kind::forward;
    if (by_turns) {
      EXPECT_LE(next.start, end) << "the next pass begins while this one would wait";
    } else {
      EXPECT_LE(end, next.start);
    }
  }
  return called;
}

TEST(Overlap, StartsExchangesOfOneMicroBatchBetweenThoseOfAnother) {
  const Config config = overlapping_config({.expert = world_size()});
  std::vector<std::string> shared = exchanges_of(config, Overlap::shared);
  std::vector<std::string> batches = exchanges_of(config, Overlap::batches);
  EXPECT_EQ(shared.empty(), world_size() == 1);
  EXPECT_EQ(exchanges_of(config, Overlap::none), shared);
  EXPECT_EQ(batches == shared, world_size() == 1);
  std::ranges::sort(shared);
  std::ranges::sort(batches);
  EXPECT_EQ(batches, shared) << "the same ones in another order";
}

}  // namespace
}  // namespace lyceum
