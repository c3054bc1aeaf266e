#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/copy.h"
#include "model/attention/logits.h"
#include "support/latent_model.h"
#include "support/resumption.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

Config clipped_run(double limit) {
  Config config = tiny_config();
  config.optim.qk_clip = limit;
  config.run.layer_metrics_every = 1;
  return config;
}

struct ClipVariant {
  const char* name;
  std::function<void(Config&)> change;
};
const std::vector<ClipVariant>& clip_variants() {
  static const std::vector<ClipVariant> all{
      {"groups of two heads", [](Config& c) { c.model.qkv_bias = true; }},
      {"a key head for each head", [](Config& c) { c.model.kv_heads = 4; }},
      {"latents", [](Config& c) { make_latent(c.model, 5); }},
      {"latents without those of queries", [](Config& c) { make_latent(c.model, 0); }},
      {"sub-dimensions",
       [](Config& c) {
         c.moe = {};
         c.balance = {};
         c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
       }},
      {"documents in windows, recomputed",
       [](Config& c) {
         c.data.document_mask = true;
         c.model.window = 4;
         c.model.sinks = true;
         c.model.recompute = Recompute::full;
       }},
  };
  return all;
}

/// Without a learning rate a step only scales, so the first block's logits, whose input stays the same, become γ times
/// as large: the largest one becomes the limit. This holds for parts of heads with and without positions only if all
/// parts of a logit have the same factor. Logits below the limit stay as they are.
TEST(QkClip, BringsTheLargestLogitToTheLimit) {
  for (const auto& [name, change] : clip_variants()) {
    Config config = clipped_run(1e9);
    change(config);
    config.parallel = {.expert = config.moe.experts > 0 ? world_size() : 1, .zero = 1};
    config.optim.lr = 1e-30;
    TinyTraining untouched(config, test_world());
    const double largest = untouched.run(0, 1).front().layers.value().attention_logits.at(0);
    EXPECT_GT(largest, 0.01) << name;
    expect_close(untouched.run(0, 1).front().layers->attention_logits[0], largest, 1e-5, "unchanged");
    config.optim.qk_clip = largest / 3;
    TinyTraining clipped(config, test_world());
    expect_close(clipped.run(0, 1).front().layers->attention_logits[0], largest, 1e-5, name);
    for (int again = 0; again < 2; ++again) {
      expect_close(clipped.run(0, 1).front().layers->attention_logits[0], largest / 3, 1e-5, name);
    }
  }
}

std::vector<ParallelConfig> clip_meshes() {
  std::vector<ParallelConfig> all;
  for (int zero = 0; zero <= 3; ++zero) {
    all.push_back({.zero = zero});
    all.push_back({.tensor = 2, .zero = zero, .sequence = zero % 2 == 1});
  }
  all.push_back({.expert = world_size(), .zero = 1});
  all.push_back({.pipeline = 2, .zero = 3});
  all.push_back({.pipeline = 2, .tensor = 2, .expert = 2, .zero = 1, .sequence = true});
  return all;
}

/// Weights and states after three steps, in which both rules clip.
TEST(QkClip, TrainsTheSameOnEveryMesh) {
  std::size_t variant = 0;
  for (const auto& [name, change] : clip_variants()) {
    for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
      Config config = clipped_run(0.8);
      change(config);
      config.optim.rule = rule;
      config.optim.ema = 0.5;
      std::vector<Config> runs;
      std::size_t mesh = 0;
      for (const ParallelConfig& parallel : clip_meshes()) {
        const bool with_muon =
            (++mesh + variant) % 2;  // each mesh has one rule for one variant, the other for the next
        if (with_muon != (rule == UpdateRuleName::muon) || half_has_same_axes(parallel, world_size())) continue;
        Config own = config;
        own.parallel = parallel;
        if (contradictions(own, world_size()).empty()) runs.push_back(own);
      }
      if (runs.empty()) continue;
      const Trajectory serial = train(config, ProcessGroup::self(), 3);
      int clipped = 0;
      for (const StepResult& step : serial.steps) {
        clipped += std::ranges::max(step.layers->attention_logits) > config.optim.qk_clip;
      }
      EXPECT_GE(clipped, 2) << name;
      for (const Config& own : runs) {
        const ParallelConfig& parallel = own.parallel;
        expect_same_run(
            train(own, test_world(), 3), serial,
            mesh_shape(parallel).text(world_size()) + " zero " + std::to_string(parallel.zero) + ", " + name);
      }
    }
    ++variant;
  }
}

TEST(QkClip, ResumesWithTheSameBits) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Config config = clipped_run(0.8);
    config.parallel = {.expert = world_size(), .zero = 3};
    const Resumption run(config, type);
    for (std::size_t s = 0; s < run.expected.size(); ++s) {
      EXPECT_EQ(run.resumed[s].layers->attention_logits, run.expected[s].layers->attention_logits);
    }
  }
}

/// The weights that the passes read are the rounded masters.
TEST(QkClip, ScalesMastersAndTheirCopies) {
  Config config = clipped_run(0.5);
  config.run.audit_every = 1;  // finds weights that an update has not written
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world(), DType::bf16);
  training.run(0, 2);
  training.settle();
  for (const UpdatedShare& updated : training.optimizer().updated()) {
    const auto master = values_of<float>(training.setup().stream, updated.master);
    const auto values = values_of<bfloat16>(training.setup().stream, updated.share.values);
    ASSERT_EQ(master.size(), values.size());
    for (std::size_t i = 0; i < master.size(); ++i) {
      ASSERT_EQ(static_cast<float>(values[i]), static_cast<float>(static_cast<bfloat16>(master[i])));
    }
  }
}

TEST(QkClip, ASkippedStepScalesNothing) {
  Config config = clipped_run(0.1);
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world());
  training.run(0, 1);
  const auto before = training.weights();
  const StepResult skipped = training.run(1, 1, {.loss = 0}).front();
  EXPECT_TRUE(skipped.outlier);
  EXPECT_GT(std::ranges::max(skipped.layers->attention_logits), 0.1);
  EXPECT_EQ(training.weights(), before);
  EXPECT_FALSE(training.run(1, 1).front().skipped);
  EXPECT_NE(training.weights(), before);
}

/// A limit above all logits changes no bit, measured or not.
TEST(QkClip, AHighLimitChangesNoBit) {
  Config config = tiny_config();
  config.parallel = {.expert = world_size(), .zero = 1};
  config.run.layer_metrics_every = 0;
  const Trajectory plain = train(config, test_world(), 3);
  config.optim.qk_clip = 1e6;
  const Trajectory high = train(config, test_world(), 3);
  EXPECT_EQ(high.weights, plain.weights);
  EXPECT_FALSE(high.steps.back().layers.has_value());
}

/// Other attention has no such logits.
TEST(AttentionLogits, ExistForASoftmaxOnly) {
  Config config = tiny_config();
  EXPECT_TRUE(AttentionLogits::exist(config.model));
  config.model.attention_weights = AttentionWeights::stick_breaking;
  EXPECT_FALSE(AttentionLogits::exist(config.model));
  config.run.layer_metrics_every = 1;
  config.parallel.expert = world_size();
  EXPECT_TRUE(train(config, test_world(), 1).steps[0].layers->attention_logits.empty());
}

}  // namespace
}  // namespace lyceum
