// Experts that move to other ranks between steps change no result.
#include <gtest/gtest.h>

#include "model/placed_experts.h"
#include "parallel/expert/rebalance.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/step/live_placement.h"

namespace lyceum {
namespace {

constexpr int moving_steps = 4;

/// A model with 16 experts, of two widths if `uneven`.
Config moving_config(bool uneven = false) {
  Config config = tiny_config();
  config.moe.experts = 16;
  config.moe.expert_sizes = std::vector<std::int64_t>(16, 12);
  if (uneven) {
    for (std::size_t e = 1; e < 16; e += 2) config.moe.expert_sizes[e] = 21;
  }
  config.balance.device_groups = 4;
  return config;
}

/// Returns a load of all mixtures that makes the experts of one rank hot, another one after every step.
std::vector<ExpertLoad> load_after(const Config& config, std::span<const MixturePlacement> placement, int step) {
  std::vector<ExpertLoad> load;
  for (const auto& [id, ranks] : placement) {
    ExpertLoad& of = load.emplace_back(ExpertLoad{id, {}});
    for (std::size_t e = 0; e < ranks.owner.size(); ++e) {
      const bool hot = ranks.owner[e] == (step + id.layer) % ranks.ranks();
      of.tokens.push_back(static_cast<double>((hot ? 20 : 1) + e % 5));
    }
    of.tokens.resize(static_cast<std::size_t>(mixture_of(config, id).choices()), 50);  // choices without weights
  }
  return load;
}

/// A training run whose experts move after every step, by loads that have nothing to do with the real ones.
class MovingTraining {
 public:
  MovingTraining(const Config& config, ProcessGroup world, DType type = DType::f32)
      : training_(config, std::move(world), type),
        live_(training_.live_placement()),
        placement_(place_all_experts(training_.config(), training_.setup().mesh.expert.size(), {})) {}

  /// Makes steps [first, first + count). Expects experts to move after each.
  void run(int first, int count) {
    for (int step = first; step < first + count; ++step) {
      steps_.push_back(training_.run(step, 1).front());
      move(step);
    }
  }
  Trajectory trajectory() const { return {steps_, training_.weights()}; }
  TinyTraining& training() { return training_; }
  LivePlacement& live() { return *live_; }
  std::vector<MixturePlacement>& placement() { return placement_; }
  const std::vector<StepResult>& steps() const { return steps_; }

 private:
  void move(int step) {
    const std::vector<ExpertLoad> load = load_after(training_.config(), placement_, step);
    std::optional<std::vector<MixturePlacement>> better = live_->better(placement_, load);
    ASSERT_TRUE(better.has_value()) << "step " << step;
    const PlacementChange change = live_->move(placement_, *better, load);
    EXPECT_GT(change.experts, 0);
    EXPECT_GT(change.layers, 0);
    EXPECT_LT(change.imbalance_after, change.imbalance_before);
    EXPECT_GT(change.bytes, 0);
    placement_ = std::move(*better);
    for (const PlacedExperts* experts : training_.model().placed_experts()) {
      EXPECT_EQ(experts->placement(), std::ranges::find(placement_, experts->id(), &MixturePlacement::id)->ranks);
    }
  }

  TinyTraining training_;
  std::unique_ptr<LivePlacement> live_;
  std::vector<MixturePlacement> placement_;
  std::vector<StepResult> steps_;
};

Trajectory train_moving(const Config& config, ProcessGroup world, DType type = DType::f32) {
  MovingTraining moving(config, std::move(world), type);
  moving.run(0, moving_steps);
  return moving.trajectory();
}

void expect_serial_run(const Config& config, const std::string& name) {
  SCOPED_TRACE(name);
  Config alone = config;
  alone.parallel = {};
  const Trajectory serial = train(alone, ProcessGroup::self(), moving_steps);
  expect_same_run(train_moving(config, test_world()), serial, name);
}

TEST(LivePlacement, ChangesNoResult) {
  const int world = world_size();
  for (const bool uneven : {false, true}) {
    for (int expert = 2; expert <= world; expert *= 2) {
      Config config = moving_config(uneven);
      config.parallel.expert = expert;
      expect_serial_run(config, "ep " + std::to_string(expert) + (uneven ? ", uneven" : ""));
    }
  }
}

TEST(LivePlacement, GoesWithZero) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs copies of experts";
  for (const int stage : {1, 2, 3}) {
    Config config = moving_config(true);
    config.parallel.expert = 2;
    config.parallel.zero = stage;
    expect_serial_run(config, "ZeRO " + std::to_string(stage));
  }
}

TEST(LivePlacement, GoesWithTensorParallelExperts) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs expert ranks with tensor ranks each";
  Config config = moving_config(true);
  config.parallel.tensor = config.parallel.expert_tensor = 2;
  config.parallel.expert = 2;
  config.parallel.sequence = true;
  config.parallel.zero = 1;
  expect_serial_run(config, "expert tensor");
}

TEST(LivePlacement, GoesWithThePipeline) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs expert ranks in two stages";
  Config config = moving_config();
  config.parallel.pipeline = 2;
  config.parallel.expert = world / 2;
  expect_serial_run(config, "pipeline");
}

TEST(LivePlacement, GoesWithHopsOverHosts) {
  const int world = world_size();
  if (world < 4) GTEST_SKIP() << "needs two hosts of two ranks";
  Config config = moving_config();
  config.parallel.expert = world;
  config.parallel.host_ranks = world / 2;
  expect_serial_run(config, "hosts");
}

TEST(LivePlacement, GoesWithOverlapAndRecomputation) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config();
  config.parallel.expert = world;
  config.batch.global = 2 * world;
  config.batch.micro = 1;
  config.parallel.overlap = Overlap::batches;
  config.model.recompute = Recompute::full;
  config.parallel.expert_exchange = ExpertExchange::bounded;
  config.moe.capacity_factor = 1.2;
  expect_serial_run(config, "overlap");
}

/// Experts with biases that work in a latent width, next to choices without weights, in layers with different numbers
/// of experts and in a module of multi-token prediction.
TEST(LivePlacement, GoesWithOtherMixtures) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config();
  config.model.ffn_bias = true;
  config.moe.latent_hidden = 10;
  config.moe.zero_experts = 2;
  config.moe.copy_experts = 1;
  config.mtp.depth = 1;
  config.parallel.expert = 2;
  config.parallel.zero = 2;
  expect_serial_run(config, "other mixtures");
  config = moving_config();
  config.moe.expert_sizes.clear();
  config.moe.experts_of_layers = {9, 14};
  config.moe.experts = 14;
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  expect_serial_run(config, "other numbers of experts");
}

TEST(LivePlacement, MovesTheStatesOfMuonAndAverages) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config(true);
  config.parallel.expert = 2;
  config.optim.rule = UpdateRuleName::muon;
  config.optim.adamw_only = {"model/layers/*/mlp/experts/3/down_proj/weight"};
  config.optim.ema = 0.9;
  for (const int stage : {0, 1}) {
    config.parallel.zero = stage;
    Config alone = config;
    alone.parallel = {};
    const Trajectory serial = train(alone, ProcessGroup::self(), moving_steps);
    expect_same_run(train_moving(config, test_world()), serial, "Muon, ZeRO " + std::to_string(stage));
  }
}

/// Random numbers that round states belong to the elements of logical tensors, so they move with experts.
TEST(LivePlacement, RoundsStatesAsWithoutMoves) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config();
  config.optim.moments = MomentType::bf16;
  config.parallel.expert = 2;
  Config alone = config;
  alone.parallel = {};
  const Trajectory serial = train(alone, ProcessGroup::self(), moving_steps);
  const Trajectory run = train_moving(config, test_world());
  expect_same_steps(run.steps, serial.steps, "bf16 moments");
  expect_same_rounding(run, serial, 0.98, "bf16 moments");
}

TEST(LivePlacement, KeepsAuditsAndReplaysQuiet) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config();
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  config.run.audit_every = 1;
  config.run.replay_every = 2;
  expect_serial_run(config, "audits");
}

/// In bf16 the weights are rounded from the masters that have moved.
TEST(LivePlacement, RoundsWeightsFromTheirMasters) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config();
  config.parallel.expert = 2;
  for (const int stage : {0, 1, 3}) {
    config.parallel.zero = stage;
    MovingTraining moving(config, test_world(), DType::bf16);
    moving.run(0, 1);
    for (const UpdatedShare& updated : moving.training().optimizer().updated()) {
      const std::vector<float> master = values_of<float>(moving.training().setup().stream, updated.master);
      const std::vector<bfloat16> weights = values_of<bfloat16>(moving.training().setup().stream, updated.share.values);
      ASSERT_EQ(master.size(), weights.size());
      for (std::size_t i = 0; i < master.size(); ++i) {
        ASSERT_EQ(static_cast<float>(weights[i]), static_cast<float>(bfloat16(master[i])))
            << updated.share.unit->name() << ' ' << i;
      }
    }
  }
}

TEST(LivePlacement, SendsTheBytesThatItPlans) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  for (const int stage : {0, 1}) {
    Config config = moving_config(true);
    config.parallel.expert = 2;
    config.parallel.zero = stage;
    MovingTraining moving(config, test_world());
    const Mesh& mesh = moving.training().setup().mesh;
    const std::vector<ExpertLoad> load = load_after(moving.training().config(), moving.placement(), 0);
    const auto better = moving.live().better(moving.placement(), load);
    ASSERT_TRUE(better.has_value());
    const ExpertMover planner(mesh, moving.training().setup().stream);
    std::int64_t own = 0, parameters = 0;
    for (const PlacedExperts* experts : moving.training().model().placed_experts()) {
      const Placement& after = std::ranges::find(*better, experts->id(), &MixturePlacement::id)->ranks;
      const std::vector<std::int64_t> elements = experts->slot_elements();
      own += planner.bytes_sent(
          moving.training().optimizer(),
          {.unit = experts->unit(), .slot_elements = elements, .before = experts->placement(), .after = after});
      for (const std::int32_t e : moved_experts(experts->placement(), after)) {
        parameters += elements[static_cast<std::size_t>(e)];
      }
    }
    const PlacementChange change = moving.live().move(moving.placement(), *better, load);
    EXPECT_EQ(moving.live().bytes_sent(), own);
    // A weight and two moments of 4 bytes each, once or, without ZeRO, to every copy.
    EXPECT_EQ(change.bytes, 12 * parameters * (stage == 0 ? mesh.expert_data.size() : 1));
  }
}

/// A run that resumes with the recorded placement has the same memory layout, so its bits are those of a run that was
/// not interrupted. With the configured placement it agrees within rounding.
TEST(LivePlacement, ResumesFromCheckpoints) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config(true);
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  const ProcessGroup ranks = test_world();
  const SharedDirectory directory(ranks);
  MovingTraining whole(config, test_world());
  whole.run(0, 2);
  save(whole.training(), directory.path(), 2);
  const std::vector<MixturePlacement> recorded = whole.placement();
  whole.run(2, 2);
  const std::vector<StepResult> expected(whole.steps().begin() + 2, whole.steps().end());
  for (const bool as_recorded : {true, false}) {
    MovingTraining resumed(config, test_world());
    ASSERT_TRUE(resumed.live().fits(recorded, resumed.placement()));
    if (as_recorded) {
      resumed.placement() = recorded;
      resumed.live().begin_at(recorded);
    }
    resumed.training().load(CheckpointReader(resolve_checkpoint(directory.path())), 2);
    resumed.run(2, 2);
    expect_same_steps(resumed.steps(), expected, as_recorded ? "recorded" : "configured");
    if (!as_recorded) continue;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      EXPECT_EQ(resumed.steps()[s].loss, expected[s].loss);
      EXPECT_EQ(resumed.steps()[s].grad_norm, expected[s].grad_norm);
    }
    EXPECT_EQ(resumed.training().weights(), whole.training().weights());
  }
}

TEST(LivePlacement, FitsOnlySlotsOfTheSameKinds) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config(true);
  config.parallel.expert = 2;
  MovingTraining moving(config, test_world());
  const std::vector<MixturePlacement> configured = moving.placement();
  std::vector<MixturePlacement> other = configured;
  EXPECT_TRUE(moving.live().fits(other, configured));
  EXPECT_FALSE(moving.live().fits({}, configured));
  other[0].ranks = Placement::contiguous(16, 4);
  EXPECT_FALSE(moving.live().fits(other, configured)) << "other ranks";
  other = configured;
  std::swap(other[0].ranks.order[0], other[0].ranks.order[1]);
  EXPECT_FALSE(moving.live().fits(other, configured)) << "widths in another order";
}

TEST(LivePlacement, StaysAsItIsWithoutAGain) {
  const int world = world_size();
  if (world < 2) GTEST_SKIP() << "needs expert ranks";
  Config config = moving_config();
  config.parallel.expert = 2;
  config.parallel.replace_gain = 0.99;
  MovingTraining moving(config, test_world());
  EXPECT_FALSE(moving.live()
                   .better(moving.placement(), load_after(moving.training().config(), moving.placement(), 0))
                   .has_value());
  EXPECT_FALSE(moving.live().better(moving.placement(), {}).has_value()) << "an even load";
}

}  // namespace
}  // namespace lyceum
