// Training through a pipeline of all ranks gives the bits of the serial run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/checkpoint/checkpoint.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/eval/evaluator.h"

namespace lyceum {
namespace {

constexpr int pipeline_steps = 3;

/// A model with two more blocks than stages, so that stages are uneven. The first two blocks are dense.
Config pipeline_config() {
  Config config = tiny_config();
  config.model.layers = world_size() + 2;
  config.model.first_dense_layers = 2;
  config.model.init_std = 0.1;
  config.batch.micro = 1;
  return config;
}

Config in_stages(Config config, ScheduleKind schedule = ScheduleKind::one_forward_one_backward,
                 int virtual_stages = 1) {
  config.parallel.pipeline = world_size();
  config.parallel.schedule = schedule;
  config.parallel.virtual_stages = virtual_stages;
  return config;
}

void expect_same_bits(const Trajectory& run, const Trajectory& serial, const std::string& name) {
  ASSERT_EQ(run.steps.size(), serial.steps.size());
  for (std::size_t s = 0; s < serial.steps.size(); ++s) {
    const StepResult &a = run.steps[s], &b = serial.steps[s];
    const std::string where = name + " step " + std::to_string(s);
    EXPECT_EQ(a.loss, b.loss) << where;
    EXPECT_EQ(a.losses, b.losses) << where;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << where;
    EXPECT_EQ(a.weight_norm, b.weight_norm) << where;
    EXPECT_EQ(a.update_norm, b.update_norm) << where;
    EXPECT_EQ(a.load_imbalance, b.load_imbalance) << where;
    ASSERT_EQ(a.routing.size(), b.routing.size());
    for (std::size_t layer = 0; layer < b.routing.size(); ++layer) {
      EXPECT_EQ(a.routing[layer].id, b.routing[layer].id) << where;
      EXPECT_EQ(a.routing[layer].counts, b.routing[layer].counts) << where << " layer " << layer;
      EXPECT_EQ(a.routing[layer].probability, b.routing[layer].probability) << where << " layer " << layer;
    }
  }
  for (const Trajectory::Slice& slice : run.weights) {
    EXPECT_TRUE(std::ranges::find(serial.weights, slice) != serial.weights.end()) << name << " " << slice.name;
  }
}

TEST(PipelineTraining, EveryScheduleIsTheSerialRunBitForBit) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Config config = pipeline_config();
    config.model.recompute = recompute;
    const Trajectory serial = train(config, ProcessGroup::self(), pipeline_steps);
    EXPECT_LT(serial.steps.back().loss, serial.steps.front().loss);
    for (const ScheduleKind schedule :
         {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
      const Trajectory run = train(in_stages(config, schedule), test_world(), pipeline_steps);
      expect_same_bits(run, serial, name_of(schedule) + ", recompute " + name_of(recompute));
    }
  }
}

TEST(PipelineTraining, InterleavedStagesToo) {
  if (world_size() == 1) return;
  Config config = pipeline_config();
  config.model.layers = 2 * world_size() + 1;
  config.batch.micro = 1;
  const Trajectory serial = train(config, ProcessGroup::self(), pipeline_steps);
  expect_same_bits(train(in_stages(config, ScheduleKind::interleaved, 2), test_world(), pipeline_steps), serial,
                   "interleaved");
}

TEST(PipelineTraining, InBfloat16) {
  const Config config = pipeline_config();
  const Trajectory serial = train(config, ProcessGroup::self(), pipeline_steps, DType::bf16);
  expect_same_bits(train(in_stages(config), test_world(), pipeline_steps, DType::bf16), serial, "bf16");
}

TEST(PipelineTraining, WithoutDenseOrWithoutSparseLayersOnAStage) {
  Config config = pipeline_config();
  config.model.first_dense_layers = 0;
  expect_same_bits(train(in_stages(config), test_world(), pipeline_steps),
                   train(config, ProcessGroup::self(), pipeline_steps), "all sparse");
  config.model.first_dense_layers = config.model.layers - 1;
  expect_same_bits(train(in_stages(config), test_world(), pipeline_steps),
                   train(config, ProcessGroup::self(), pipeline_steps), "one sparse");
  config.moe = {};
  config.balance = {};
  expect_same_bits(train(in_stages(config), test_world(), pipeline_steps),
                   train(config, ProcessGroup::self(), pipeline_steps), "all dense");
}

TEST(PipelineTraining, ATiedTableStaysOne) {
  Config config = pipeline_config();
  config.model.tie_embeddings = true;
  const Trajectory serial = train(config, ProcessGroup::self(), pipeline_steps);
  for (const ScheduleKind schedule : {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
    TinyTraining training(in_stages(config, schedule), test_world());
    Trajectory run{.steps = training.run(0, pipeline_steps), .weights = training.weights()};
    expect_same_run(run, serial, "tied, " + name_of(schedule));
    training.settle();
    // The first and the last stage hold the same bits. Other stages do not affect the maximum and minimum.
    const ParameterUnit* table = training.model().shared_table();
    const ProcessGroup& pipeline = training.setup().mesh.pipeline;
    EXPECT_EQ(table != nullptr,
              pipeline.size() > 1 && (pipeline.rank() == 0 || pipeline.rank() + 1 == pipeline.size()));
    if (pipeline.size() == 1) continue;
    std::vector<float> most(61 * 24, -INFINITY), least(61 * 24, INFINITY);
    if (table) {
      ASSERT_GE(table->size(), std::ssize(most));
      std::copy_n(table->values().data<float>(), most.size(), most.begin());
      least = most;
    }
    pipeline.all_reduce(std::span(most), Reduction::max);
    pipeline.all_reduce(std::span(least), Reduction::min);
    EXPECT_EQ(most, least) << name_of(schedule);
  }
}

TEST(PipelineTraining, DoesWhatTheScheduleSays) {
  TinyTraining training(in_stages(pipeline_config(), ScheduleKind::zero_bubble), test_world());
  const StepResult result = training.run(0, 1)[0];
  const Mesh& mesh = training.setup().mesh;
  const Schedule schedule = training_schedule(training.config(), mesh);
  const Program& expected = schedule.programs[static_cast<std::size_t>(mesh.pipeline.rank())];
  ASSERT_EQ(result.trace.size(), expected.size());
  double now = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.trace[i].action, expected[i]);
    EXPECT_GE(result.trace[i].start, now);
    now = result.trace[i].end;
  }
  for (const MemoryKind kind : {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer}) {
    EXPECT_GT(result.memory.peak[static_cast<std::size_t>(kind)], 0u);
  }
}

/// gpipe has all micro-batches in flight on every rank, 1f1b as many as there are stages from this rank to the last.
TEST(PipelineTraining, TheScheduleDecidesHowMuchIsKept) {
  if (world_size() == 8) return;  // rank 0 then has all 8 micro-batches in flight with both schedules
  std::vector<double> peaks;
  for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward}) {
    TinyTraining training(in_stages(pipeline_config(), schedule), test_world());
    const StepResult result = training.run(0, 1)[0];
    peaks.push_back(static_cast<double>(result.memory.peak[static_cast<std::size_t>(MemoryKind::activations)]));
  }
  // The memory that one micro-batch keeps follows from the difference. The peak also contains temporary memory of a
  // pass.
  const int most = 8, fewer = world_size() - test_world().rank();
  const double kept = (peaks[0] - peaks[1]) / (most - fewer);
  EXPECT_NEAR(most * kept, peaks[0], 0.25 * peaks[0]) << peaks[1] << " with " << fewer << " in flight";
  EXPECT_LT(most * kept, peaks[0]);
}

TEST(PipelineTraining, ANonFiniteStepIsLeftOutOnAllStages) {
  for (const bool first : {false, true}) {
    Config config = in_stages(pipeline_config());
    config.run.audit_every = 0;  // an audit would find the changed weight
    TinyTraining training(config, test_world());
    const ProcessGroup& pipeline = training.setup().mesh.pipeline;
    training.run(0, 1);
    const std::vector<Trajectory::Slice> weights = training.weights();
    float& poisoned = training.model().units()[0]->values().data<float>()[0];
    const float before = poisoned;
    if (pipeline.rank() == (first ? 0 : pipeline.size() - 1)) poisoned = NAN;
    const StepResult bad = training.run(1, 1)[0];
    EXPECT_TRUE(bad.skipped);
    EXPECT_EQ(training.optimizer().updates(), 1);
    poisoned = before;
    EXPECT_EQ(training.weights(), weights);
    EXPECT_FALSE(training.run(2, 1)[0].skipped);
    EXPECT_EQ(training.optimizer().updates(), 2);
  }
}

TEST(PipelineTraining, ValidationIsThatOfTheWholeModel) {
  Config config = pipeline_config();
  config.batch.micro = 3;
  config.batch.global = 6;
  TinyTraining alone(config, ProcessGroup::self()), staged(in_stages(config), test_world());
  for (const std::int64_t batches : {1, 3, 0}) {
    const Evaluation expected = evaluate(alone.model(), alone.setup(), config, alone.loader(), batches);
    const Evaluation result = evaluate(staged.model(), staged.setup(), staged.config(), staged.loader(), batches);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.samples, expected.samples);
    EXPECT_EQ(result.tokens, expected.tokens);
    ASSERT_EQ(result.routing.size(), expected.routing.size());
    for (std::size_t layer = 0; layer < expected.routing.size(); ++layer) {
      EXPECT_EQ(result.routing[layer].counts, expected.routing[layer].counts);
    }
  }
}

TEST(PipelineTraining, ACheckpointGoesOnOnAnyMesh) {
  const ProcessGroup world = test_world();
  const SharedDirectory shared(world);
  const std::filesystem::path& root = shared.path();
  Config config = pipeline_config();
  config.model.tie_embeddings = true;
  config.optim.clip_norm = 0.5;
  const std::vector<StepResult> whole = train(config, ProcessGroup::self(), 5).steps;
  const std::vector<StepResult> rest(whole.begin() + 3, whole.end());
  Config sharded = config;
  sharded.parallel.zero = 3;
  Config half = in_stages(config, ScheduleKind::zero_bubble);
  half.parallel.pipeline = std::max(world_size() / 2, 1);
  half.parallel.zero = 2;

  TinyTraining stages(in_stages(config), test_world());
  stages.run(0, 3);
  save(stages, root / "stages", 3);
  world.barrier();
  TinyTraining data(sharded, test_world());
  expect_same_steps(resume(data, root / "stages", 3, 2), rest, "stages to data ranks");
  TinyTraining both(half, test_world());
  expect_same_steps(resume(both, root / "stages", 3, 2), rest, "stages to fewer stages");
  TinyTraining alone(config, ProcessGroup::self());
  expect_same_steps(resume(alone, root / "stages", 3, 2), rest, "stages to one rank");

  TinyTraining first(half, test_world());
  first.run(0, 3);
  save(first, root / "half", 3);
  world.barrier();
  TinyTraining second(in_stages(config, ScheduleKind::gpipe), test_world());
  expect_same_steps(resume(second, root / "half", 3, 2), rest, "fewer stages to stages");
}

}  // namespace
}  // namespace lyceum
