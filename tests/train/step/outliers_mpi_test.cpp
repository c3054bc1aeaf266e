#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/trajectory.h"

namespace lyceum {
namespace {

/// The configurations whose updates have different parts: rules, averages, selection biases, ZeRO stages, pipelines.
std::vector<std::pair<std::string, Config>> outlier_variants() {
  const int ranks = world_size();
  std::vector<std::pair<std::string, Config>> all;
  const auto add = [&](const std::string& name, auto&& change) {
    Config config = tiny_config();
    config.parallel.expert = ranks;
    config.run.audit_every = 1;
    change(config);
    all.emplace_back(name, config);
  };
  add("adamw", [](Config&) {});
  add("replayed", [](Config& config) { config.run.replay_every = 1; });
  add("muon with an average, zero 1", [](Config& config) {
    config.optim.rule = UpdateRuleName::muon;
    config.optim.ema = 0.9;
    config.parallel.zero = 1;
  });
  add("bias, zero 2", [](Config& config) {
    config.moe.router = RouterKind::sigmoid;
    config.balance = {.expert = 0.01, .bias_rate = 0.05};
    config.parallel.zero = 2;
  });
  add("zero 3", [](Config& config) { config.parallel.zero = 3; });
  if (ranks > 1) {
    add("pipeline", [&](Config& config) {
      config.parallel.pipeline = 2;
      config.parallel.expert = ranks / 2;
    });
  }
  return all;
}

/// A skipped step changes no weight, state, average or bias and is no update: the run goes on as if it had not been
/// made.
TEST(Outliers, ASkippedStepLeavesNoTrace) {
  for (const auto& [name, config] : outlier_variants()) {
    TinyTraining skipping(config, test_world()), leaving_out(config, test_world());
    const StepResult first = skipping.run(0, 1).front();
    EXPECT_FALSE(first.skipped) << name;
    leaving_out.run(0, 1);
    const auto before = skipping.weights();
    const StepLimits loss{.loss = 1e-3}, norm{.norm = 1e-6};
    for (const StepLimits& limits : {loss, norm}) {
      const StepResult result = skipping.run(1, 1, limits).front();
      EXPECT_TRUE(result.skipped && result.outlier) << name;
      EXPECT_TRUE(std::isfinite(result.loss) && std::isfinite(result.grad_norm)) << name;
      EXPECT_EQ(result.update_norm, 0) << name;
      EXPECT_TRUE(result.culprit.empty()) << name << ": " << result.culprit;
      EXPECT_EQ(skipping.weights(), before) << name;
      EXPECT_EQ(skipping.optimizer().updates(), 1) << name;
    }
    const StepResult a = skipping.run(2, 1).front(), b = leaving_out.run(2, 1).front();
    EXPECT_FALSE(a.skipped) << name;
    EXPECT_EQ(a.loss, b.loss) << name;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << name;
    EXPECT_EQ(skipping.weights(), leaving_out.weights()) << name;
    EXPECT_EQ(skipping.optimizer().updates(), 2) << name;
  }
}

TEST(Outliers, ALimitItselfIsAllowed) {
  TinyTraining measured(tiny_config(), test_world()), limited(tiny_config(), test_world());
  const StepResult found = measured.run(0, 1).front();
  EXPECT_FALSE(limited.run(0, 1, {.loss = found.loss, .norm = found.grad_norm}).front().skipped);
}

}  // namespace
}  // namespace lyceum
