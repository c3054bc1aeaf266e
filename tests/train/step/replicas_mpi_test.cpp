// Replicas of hot experts on other ranks change no result.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "config/check.h"
#include "model/placed_experts.h"
#include "model/routing/expert_placements.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

constexpr int replicated_steps = 3;

/// A model with 16 experts, of three widths if `uneven`, and two spare slots per expert rank. Tokens are few, so their
/// distribution over experts is uneven.
Config replicated_config(bool uneven = false) {
  Config config = tiny_config();
  config.moe.experts = 16;
  config.moe.expert_sizes = std::vector<std::int64_t>(16, 12);
  if (uneven) {
    for (std::size_t e = 1; e < 16; e += 2) config.moe.expert_sizes[e] = e % 3 ? 21 : 5;
  }
  config.balance.device_groups = 4;
  config.parallel.replicas = 2;
  return config;
}

/// Returns the FLOPs of each rank of the expert group in a layer, from the loads of a step and what replicas moved.
std::vector<std::int64_t> flops_of_ranks(const Mixture& mixture, const Placement& placement, const StepResult& step,
                                         bool with_replicas) {
  std::vector<std::int64_t> flops(static_cast<std::size_t>(placement.ranks()));
  const RoutingSums& load = *std::ranges::find(step.loads, mixture.id, &RoutingSums::id);
  for (std::size_t e = 0; e < placement.owner.size(); ++e) {
    const std::int64_t computed = load.counts[e] - (load.dropped.empty() ? 0 : load.dropped[e]);
    flops[static_cast<std::size_t>(placement.owner[e])] += computed * mixture.widths[e];
  }
  if (!with_replicas) return flops;
  const MovedFlops& moved = *std::ranges::find(step.replicas.moved, mixture.id, &MovedFlops::id);
  std::ranges::transform(flops, moved.of_ranks, flops.begin(), std::plus<>());
  return flops;
}

/// Expects that the counts for the routing log agree with what the step says of its replicas.
void expect_counts(const Mixture& mixture, const Placement& placement, const StepResult& step) {
  const ReplicaCounts& counts = std::ranges::find(step.replica_sums, mixture.id, &ReplicaSums::id)->counts;
  ASSERT_EQ(std::ssize(counts.replicas), mixture.choices());
  const RoutingSums& load = *std::ranges::find(step.loads, mixture.id, &RoutingSums::id);
  std::vector<std::int64_t> given(static_cast<std::size_t>(placement.ranks()));  // FLOPs, by owner
  for (std::size_t e = 0; e < placement.owner.size(); ++e) {
    EXPECT_EQ(counts.replicas[e] > 0, counts.tokens[e] > 0);
    EXPECT_LE(counts.tokens[e], load.counts[e] - (load.dropped.empty() ? 0 : load.dropped[e]));
    given[static_cast<std::size_t>(placement.owner[e])] += counts.tokens[e] * mixture.widths[e];
  }
  const MovedFlops& moved = *std::ranges::find(step.replicas.moved, mixture.id, &MovedFlops::id);
  for (std::size_t rank = 0; rank < given.size(); ++rank) EXPECT_GE(given[rank], -moved.of_ranks[rank]);
  const std::int64_t replicas = std::reduce(counts.replicas.begin(), counts.replicas.end());
  EXPECT_LE(counts.kept, replicas);
  EXPECT_GE(counts.kept + counts.sent, replicas);  // backward may send weights again
  EXPECT_EQ(counts.bytes > 0, counts.sent > 0);
}

/// Expects steps that used replicas, and busiest ranks with less to compute than without. `placed`: where the experts
/// are; empty: where `config` places them.
void expect_replicas(const Config& config, const std::vector<StepResult>& steps, const std::string& name,
                     std::vector<MixturePlacement> placed = {}) {
  Config resolved = config;
  resolve(resolved, world_size());
  if (placed.empty()) placed = place_all_experts(resolved, resolved.parallel.expert, {});
  for (const StepResult& step : steps) {
    EXPECT_GT(step.replicas.replicas, 0) << name;
    ASSERT_EQ(step.replicas.moved.size(), placed.size()) << name;
    std::int64_t busiest_with = 0, busiest_without = 0;
    for (const MixturePlacement& layer : placed) {
      const Mixture mixture = mixture_of(resolved, layer.id);
      const std::vector<std::int64_t> with = flops_of_ranks(mixture, layer.ranks, step, true),
                                      without = flops_of_ranks(mixture, layer.ranks, step, false);
      EXPECT_EQ(std::reduce(with.begin(), with.end()), std::reduce(without.begin(), without.end())) << name;
      EXPECT_GE(std::ranges::min(with), 0) << name;
      expect_counts(mixture, layer.ranks, step);
      busiest_with += std::ranges::max(with);
      busiest_without += std::ranges::max(without);
    }
    EXPECT_LT(busiest_with, busiest_without) << name;
    std::int64_t replicas = 0;
    for (const auto& [id, counts] : step.replica_sums) {
      replicas += std::reduce(counts.replicas.begin(), counts.replicas.end());
    }
    EXPECT_EQ(replicas, step.replicas.replicas) << name;
  }
}

void expect_as_serial(const Config& config, const std::string& name) {
  SCOPED_TRACE(name);
  Config alone = config;
  alone.parallel = {};
  const Trajectory serial = train(alone, ProcessGroup::self(), replicated_steps);
  const Trajectory run = train(config, test_world(), replicated_steps);
  expect_same_run(run, serial, name);
  expect_replicas(config, run.steps, name);
}

TEST(Replicas, ChangeNoResult) {
  const int world = world_size();
  for (const bool uneven : {false, true}) {
    for (int expert = 2; expert <= world; expert *= 2) {
      for (const int replicas : {1, 3}) {
        Config config = replicated_config(uneven);
        config.parallel.expert = expert;
        config.parallel.replicas = replicas;
        expect_as_serial(config, "ep " + std::to_string(expert) + (uneven ? ", uneven, " : ", ") +
                                     std::to_string(replicas) + " spare slots");
      }
    }
  }
}

/// In f64 the order of sums changes losses and gradients by some 1e-16 only.
TEST(Replicas, AgreeInDoublePrecision) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = replicated_config(true);
  config.parallel.expert = world;
  config.parallel.zero = 1;
  Config without = config;
  without.parallel.replicas = 0;
  const Trajectory expected = train(without, test_world(), replicated_steps, DType::f64);
  const Trajectory run = train(config, test_world(), replicated_steps, DType::f64);
  expect_replicas(config, run.steps, "f64");
  for (std::size_t s = 0; s < run.steps.size(); ++s) {
    // Masters are f32, so weights of later steps may differ by one rounding.
    const double tolerance = s == 0 ? 1e-10 : 1e-6;
    expect_close(run.steps[s].loss, expected.steps[s].loss, tolerance, "loss of step " + std::to_string(s));
    expect_close(run.steps[s].grad_norm, expected.steps[s].grad_norm, tolerance, "norm of step " + std::to_string(s));
    for (std::size_t layer = 0; layer < run.steps[s].routing.size(); ++layer) {
      EXPECT_EQ(run.steps[s].routing[layer].counts, expected.steps[s].routing[layer].counts);
    }
  }
}

TEST(Replicas, GoWithZeroAndSeveralPasses) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs copies of experts";
  for (const int stage : {1, 2, 3}) {
    Config config = replicated_config(true);
    config.parallel.expert = 2;
    config.parallel.zero = stage;
    config.batch.global = 2 * world;
    config.batch.micro = 1;
    expect_as_serial(config, "ZeRO " + std::to_string(stage));
  }
}

TEST(Replicas, GoWithTensorParallelExperts) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs expert ranks with tensor ranks each";
  Config config = replicated_config(true);
  config.parallel.tensor = config.parallel.expert_tensor = 2;
  config.parallel.expert = 2;
  config.parallel.sequence = true;
  config.parallel.zero = 1;
  expect_as_serial(config, "expert tensor");
}

/// A step of one micro-batch sends the weights of every replica once.
TEST(Replicas, CountWhatOneMicroBatchSends) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = replicated_config();
  config.parallel.expert = world;
  TinyTraining training(config, test_world());
  const std::int64_t elements = 3 * config.model.hidden * 12;
  for (const StepResult& step : training.run(0, 2)) {
    for (const auto& [id, counts] : step.replica_sums) {
      const std::int64_t replicas = std::reduce(counts.replicas.begin(), counts.replicas.end());
      EXPECT_EQ(counts.kept, 0);
      EXPECT_EQ(counts.sent, replicas);
      EXPECT_GE(counts.bytes, replicas * elements * 4);
      EXPECT_EQ(replicas == 0 ? 0 : counts.bytes % replicas, 0);
    }
  }
}

TEST(Replicas, GoWithThePipeline) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs expert ranks in two stages";
  for (const ScheduleKind schedule : {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
    Config config = replicated_config();
    config.parallel.pipeline = 2;
    config.parallel.expert = world / 2;
    config.parallel.schedule = schedule;
    config.batch.global = 2 * world;
    config.batch.micro = 1;
    expect_as_serial(config, "pipeline");
  }
}

TEST(Replicas, GoWithHopsOverHosts) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs two hosts of two ranks";
  Config config = replicated_config(true);
  config.parallel.expert = world;
  config.parallel.host_ranks = world / 2;
  expect_as_serial(config, "hosts");
}

TEST(Replicas, GoWithOverlapAndRecomputation) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const Overlap overlap : {Overlap::none, Overlap::batches}) {
      Config config = replicated_config();
      config.parallel.expert = world;
      config.batch.global = 3 * world;
      config.batch.micro = 1;
      config.parallel.overlap = overlap;
      config.model.recompute = recompute;
      expect_as_serial(config, "overlap and recomputation");
    }
  }
}

/// Experts with biases that work in a latent width, next to choices without weights, dropped choices, layers with
/// different numbers of experts, and a module of multi-token prediction.
TEST(Replicas, GoWithOtherMixtures) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = replicated_config();
  config.model.ffn_bias = true;
  config.moe.latent_hidden = 10;
  config.moe.zero_experts = 2;
  config.moe.copy_experts = 1;
  config.mtp.depth = 1;
  config.parallel.expert = 2;
  config.parallel.zero = 2;
  expect_as_serial(config, "other mixtures");
  config = replicated_config(true);
  config.moe.capacity_factor = 1.1;
  config.parallel.expert = 2;
  expect_as_serial(config, "capacity");
  config = replicated_config();
  config.moe.expert_sizes.clear();
  config.moe.experts_of_layers = {9, 14};
  config.moe.experts = 14;
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  expect_as_serial(config, "other numbers of experts");
}

/// Training stages change the batch, and so the numbers of rows and passes.
TEST(Replicas, GoWithRowsOfAnyNumber) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  for (const int seq_len : {3, 7, 40}) {
    Config config = replicated_config(true);
    config.parallel.expert = world;
    config.batch = {.global = 3 * world, .micro = 3, .seq_len = seq_len};
    Config alone = config;
    alone.parallel = {};
    const Trajectory serial = train(alone, ProcessGroup::self(), replicated_steps);
    expect_same_run(train(config, test_world(), replicated_steps), serial, "sequences of " + std::to_string(seq_len));
  }
}

TEST(Replicas, GoWithMuonAndAverages) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = replicated_config(true);
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  config.optim.rule = UpdateRuleName::muon;
  config.optim.ema = 0.9;
  expect_as_serial(config, "Muon");
}

/// A step that is repeated has the same replicas and so the same bits; so has one after a restart.
TEST(Replicas, KeepAuditsAndReplaysQuietAndResume) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = replicated_config(true);
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  config.run.audit_every = 1;
  config.run.replay_every = 1;
  config.batch.global = 4 * world;
  config.batch.micro = 2;
  expect_as_serial(config, "audits");

  const ProcessGroup ranks = test_world();
  const SharedDirectory directory(ranks);
  TinyTraining whole(config, test_world());
  whole.run(0, 2);
  save(whole, directory.path(), 2);
  const std::vector<StepResult> expected = whole.run(2, 2);
  TinyTraining resumed(config, test_world());
  const std::vector<StepResult> steps = resume(resumed, directory.path(), 2, 2);
  for (std::size_t s = 0; s < expected.size(); ++s) {
    EXPECT_EQ(steps[s].loss, expected[s].loss);
    EXPECT_EQ(steps[s].grad_norm, expected[s].grad_norm);
    EXPECT_EQ(steps[s].replicas.replicas, expected[s].replicas.replicas);
  }
  EXPECT_EQ(resumed.weights(), whole.weights());
}

/// Experts move to other ranks between steps, and have replicas within steps.
TEST(Replicas, GoWithLivePlacement) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = replicated_config(true);
  config.parallel.expert = 2;
  Config alone = config;
  alone.parallel = {};
  const Trajectory serial = train(alone, ProcessGroup::self(), 4);
  TinyTraining training(config, test_world());
  const std::unique_ptr<LivePlacement> live = training.live_placement();
  std::vector<MixturePlacement> placement = place_all_experts(training.config(), 2, {});
  Trajectory run;
  std::vector<std::vector<MixturePlacement>> placements;  // during each step
  for (int step = 0; step < 4; ++step) {
    placements.push_back(placement);
    run.steps.push_back(training.run(step, 1).front());
    std::vector<ExpertLoad> load;
    for (const auto& [id, ranks] : placement) {
      ExpertLoad& of = load.emplace_back(ExpertLoad{id, {}});
      for (std::size_t e = 0; e < ranks.owner.size(); ++e) {
        of.tokens.push_back(static_cast<double>((ranks.owner[e] == step % 2 ? 20 : 1) + e % 5));
      }
    }
    const auto better = live->better(placement, load);
    ASSERT_TRUE(better.has_value());
    EXPECT_GT(live->move(placement, *better, load).experts, 0);
    placement = *better;
  }
  run.weights = training.weights();
  expect_same_run(run, serial, "moves and replicas");
  for (std::size_t s = 0; s < run.steps.size(); ++s) {
    expect_replicas(config, {run.steps[s]}, "moves and replicas", placements[s]);
  }
}

}  // namespace
}  // namespace lyceum
