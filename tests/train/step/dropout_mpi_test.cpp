// Dropout in steps on meshes: a run that resumes draws the same masks; learnt rates move.
#include <gtest/gtest.h>

#include <cmath>

#include "support/resumption.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// Returns a dense model with dropout of a kind.
Config dropout_run(DropoutKind kind) {
  Config config = tiny_config();
  config.moe = {};
  config.balance = {};
  config.model.dropout = {.rate = 0.3, .kind = kind, .block = 3, .weight_regularizer = 1e-4, .regularizer = 1e-3};
  return config;
}

TEST(Dropout, ResumesWithTheSameBits) {
  const int world = world_size();
  for (const DropoutKind kind : {DropoutKind::plain, DropoutKind::concrete, DropoutKind::block}) {
    for (const ParallelConfig& parallel :
         {ParallelConfig{.zero = 3}, ParallelConfig{.tensor = 2, .zero = 1, .sequence = true},
          ParallelConfig{.pipeline = 2, .tensor = 2, .zero = 2}}) {
      Config config = dropout_run(kind);
      config.parallel = parallel;
      if (!contradictions(config, world).empty()) continue;
      for (const DType type : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(name_of(kind) + ", " + mesh_shape(parallel).text(world) + (type == DType::bf16 ? ", bf16" : ""));
        const Resumption run(config, type);
        for (const StepResult& step : run.resumed) {
          EXPECT_TRUE(std::isfinite(step.loss) && step.grad_norm > 0);
          EXPECT_EQ(step.losses.size(), kind == DropoutKind::concrete ? 1u : 0u);
        }
      }
    }
  }
}

/// Learnt rates become 1/2, which has the largest entropy, if the regulariser outweighs the cross-entropy.
TEST(Dropout, LearntRatesFollowTheirRegulariser) {
  Config config = dropout_run(DropoutKind::concrete);
  config.optim.lr = 0.05;
  config.model.dropout.weight_regularizer = 0;
  config.model.dropout.regularizer = 100;
  TinyTraining training(config, ProcessGroup::self());
  const std::vector<StepResult> steps = training.run(0, 30);
  const double sites = 1 + 2 * static_cast<double>(config.model.layers);
  const double least = -sites * 100 * static_cast<double>(config.model.hidden) * std::log(2.0);
  EXPECT_GT(steps.front().losses.at(0).value, 0.95 * least);
  EXPECT_NEAR(steps.back().losses.at(0).value, least, 0.01 * std::abs(least));
}

}  // namespace
}  // namespace lyceum
