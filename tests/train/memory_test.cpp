#include "model/memory.h"

#include <gtest/gtest.h>

#include "support/tiny_run.h"
#include "train/step.h"

namespace lyceum {
namespace {

/// Peaks of two training steps on one rank.
MemoryUse peaks(const Config& config, DType type) {
  const auto setup = make_setup(ProcessGroup::self(), {});
  const TinyData data(config.model.vocab);
  StagedModel model(config, setup->stream, setup->mesh, type, true);
  Zero::Options options = zero_options(config, setup->mesh);
  options.type = type;
  Zero zero(model.units(), setup->mesh, setup->stream, options);
  zero.initialize(1);
  Optimizer optimizer(config.optim, setup->stream, zero.shares());
  optimizer.adopt_weights();
  TrainStep step(config, *setup, model, zero, optimizer);
  const TokenLoader loader = data.loader(config);
  for (int s = 0; s < 2; ++s) step.run(loader, s * config.batch.global, 1e-3);
  return memory_of(setup->stream).use();
}

TEST(LeastMemory, IsAFloorNearWhatTrainingTakes) {
  for (const char* precision : {"f32", "bf16"}) {
    Config config = tiny_config();
    config.run.precision = precision;
    config.batch.micro = 1;
    resolve(config, 1);
    const MemoryNeed need = least_memory(config, 1, true);
    const MemoryUse use = peaks(config, working_type(config.run));
    const auto peak = [&](MemoryKind kind) { return static_cast<double>(use.peak[static_cast<std::size_t>(kind)]); };
    const auto expect_exact = [&](double estimate, MemoryKind kind) {  // but for padding
      EXPECT_LE(estimate, peak(kind)) << precision << ' ' << name_of(kind);
      EXPECT_GE(estimate, 0.95 * peak(kind)) << precision << ' ' << name_of(kind);
    };
    expect_exact(need.weights, MemoryKind::weights);
    expect_exact(need.gradients, MemoryKind::gradients);
    expect_exact(need.optimizer, MemoryKind::optimizer);
    EXPECT_LE(need.activations, peak(MemoryKind::activations)) << precision;
    EXPECT_LE(need.total(), static_cast<double>(use.total_peak)) << precision;
    EXPECT_GE(need.total(), static_cast<double>(use.total_peak) / 2) << precision;
  }
}

}  // namespace
}  // namespace lyceum
