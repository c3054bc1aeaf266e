// Training that computes the logits in chunks of tokens gives the results of training with all logits at once.
#include <gtest/gtest.h>

#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/eval/evaluator.h"

namespace lyceum {
namespace {

constexpr int chunk_steps = 3;

/// Micro-batches of 24 tokens; with chunks of 7 tokens, the last chunk has 3.
Config chunk_config() {
  Config config = tiny_config();
  config.batch.micro = 2;
  config.batch.global = 2 * std::max(world_size(), 4);
  config.model.init_std = 0.1;
  config.optim.clip_norm = 1;
  return config;
}

Config in_chunks(Config config, std::int64_t chunk = 7) {
  config.model.loss_chunk = chunk;
  return config;
}

void expect_equal_runs(const Trajectory& run, const Trajectory& expected, const std::string& name) {
  for (std::size_t s = 0; s < expected.steps.size(); ++s) {
    EXPECT_EQ(run.steps[s].loss, expected.steps[s].loss) << name;
    EXPECT_EQ(run.steps[s].grad_norm, expected.steps[s].grad_norm) << name;
  }
  for (const Trajectory::Slice& slice : run.weights) {
    EXPECT_TRUE(std::ranges::find(expected.weights, slice) != expected.weights.end()) << name << " " << slice.name;
  }
}

TEST(LossChunk, IsTheRunWithAllLogits) {
  for (const bool tied : {false, true}) {
    Config config = chunk_config();
    config.model.tie_embeddings = tied;
    const Trajectory serial = train(config, ProcessGroup::self(), chunk_steps);
    EXPECT_LT(serial.steps.back().loss, serial.steps.front().loss);
    for (const int zero : {0, 1, 2, 3}) {
      config.parallel.zero = zero;
      const std::string name = "zero " + std::to_string(zero) + (tied ? " tied" : "");
      expect_same_run(train(in_chunks(config), test_world(), chunk_steps), serial, name);
    }
  }
}

TEST(LossChunk, OfAMicroBatchAndMoreGivesTheSameBits) {
  Config config = chunk_config();
  for (const DType type : {DType::f32, DType::bf16}) {
    const Trajectory all = train(config, test_world(), chunk_steps, type);
    for (const std::int64_t chunk : {24, 1000}) {
      expect_equal_runs(train(in_chunks(config, chunk), test_world(), chunk_steps, type), all, "one chunk");
    }
  }
}

TEST(LossChunk, InBfloat16FollowsTheRunWithAllLogits) {
  const Config config = chunk_config();
  const Trajectory all = train(config, test_world(), chunk_steps, DType::bf16);
  const Trajectory chunks = train(in_chunks(config), test_world(), chunk_steps, DType::bf16);
  for (std::size_t s = 0; s < all.steps.size(); ++s) {
    expect_close(chunks.steps[s].loss, all.steps[s].loss, 2e-3, "loss");
    expect_close(chunks.steps[s].grad_norm, all.steps[s].grad_norm, 2e-2, "gradient norm");
  }
}

TEST(LossChunk, WithWordsOnTensorRanks) {
  for (const int tensor : {2, 4}) {
    if (world_size() < tensor) continue;
    Config config = chunk_config();
    config.model.kv_heads = 4;
    const Trajectory serial = train(config, ProcessGroup::self(), chunk_steps);
    config.parallel.tensor = tensor;
    for (const bool sequence : {false, true}) {
      config.parallel.sequence = sequence;
      config.parallel.zero = sequence ? 3 : 0;
      const std::string name = "tensor " + std::to_string(tensor) + (sequence ? " sequence" : "");
      expect_same_run(train(in_chunks(config), test_world(), chunk_steps), serial, name);
    }
  }
}

/// A pipeline over all ranks gives the bits of the serial run with chunks; with a tied table it agrees within rounding.
TEST(LossChunk, ThroughEverySchedule) {
  Config config = in_chunks(chunk_config());
  config.model.layers = 2 * world_size() + 1;
  for (const bool tied : {false, true}) {
    config.model.tie_embeddings = tied;
    config.parallel = {};
    const Trajectory serial = train(config, ProcessGroup::self(), chunk_steps);
    for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                                        ScheduleKind::zero_bubble, ScheduleKind::interleaved}) {
      const bool interleaved = schedule == ScheduleKind::interleaved;
      if (interleaved && world_size() == 1) continue;
      config.parallel = {.pipeline = world_size(), .schedule = schedule, .virtual_stages = interleaved ? 2 : 1};
      const Trajectory run = train(config, test_world(), chunk_steps);
      if (tied && world_size() > 1) {
        expect_same_run(run, serial, name_of(schedule) + " tied");
      } else {
        expect_equal_runs(run, serial, name_of(schedule));
      }
    }
  }
}

TEST(LossChunk, WithPutOffWeightGradientsThatAreSharedOut) {
  const int world = world_size();
  for (const bool tied : {false, true}) {
    Config config = chunk_config();
    config.batch.global = 32;
    config.model.tie_embeddings = tied;
    const Trajectory serial = train(config, ProcessGroup::self(), chunk_steps);
    for (const int zero : {2, 3}) {
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        config.parallel = {.pipeline = std::min(world, 2),
                           .tensor = world >= 8 ? 2 : 1,
                           .expert = world >= 4 ? 2 : 1,
                           .zero = zero,
                           .schedule = ScheduleKind::zero_bubble};
        config.model.recompute = recompute;
        const std::string name = "zero " + std::to_string(zero) + " " + name_of(recompute) + (tied ? " tied" : "");
        expect_same_run(train(in_chunks(config), test_world(), chunk_steps), serial, name);
      }
      config.model.recompute = Recompute::none;
    }
  }
}

TEST(LossChunk, AnEvaluationIsTheSame) {
  Config config = chunk_config();
  config.parallel.tensor = std::min(world_size(), 2);
  TinyTraining all(config, test_world()), chunks(in_chunks(config), test_world());
  const Evaluation expected = evaluate(all.model(), all.setup(), all.config(), all.loader(), 3);
  const Evaluation result = evaluate(chunks.model(), chunks.setup(), chunks.config(), chunks.loader(), 3);
  expect_close(result.loss, expected.loss, 1e-6, "validation loss");
  EXPECT_EQ(result.tokens, expected.tokens);
}

}  // namespace
}  // namespace lyceum
