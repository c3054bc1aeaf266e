#include "plan/process_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>

#include "config/check.h"
#include "plan/report.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A model whose process counts, trained on the CPU.
Config small_on_cpu() {
  Config config;
  config.run.device = DeviceKind::cpu;
  config.model = {.layers = 2, .hidden = 64, .heads = 4, .ffn_hidden = 160, .vocab = 256};
  config.batch = {.global = 4, .micro = 2, .seq_len = 128};
  return config;
}

MeshPlan planned(Config config, int world) {
  resolve(config, world);
  return plan_mesh(config, world, {});
}

TEST(ProcessMemory, IsPartOfWhatARankTakesFromItsMachine) {
  const MeshPlan plan = planned(small_on_cpu(), 1);
  const RankMemory& memory = plan.ranks.front().memory;
  EXPECT_GT(memory.process, 20e6);
  EXPECT_LT(memory.process, 100e6);
  EXPECT_EQ(plan.peak_resident(), memory.total() + memory.process);
  const auto json = nlohmann::json::parse(json_report(plan, {}, nullptr, 1e9)).at("memory_bytes_per_rank");
  EXPECT_EQ(json.at("resident"), json.at("total").get<std::int64_t>() + json.at("process").get<std::int64_t>());
  EXPECT_THAT(memory_table(plan), HasSubstr("resident"));
  EXPECT_EQ(shortage(plan, plan.peak_resident(), "a rank"), "");
  EXPECT_THAT(shortage(plan, plan.peak_resident() - 1, "a rank"), HasSubstr(", process "));
}

TEST(ProcessMemory, IsNotThatOfAGpu) {
  Config config = small_on_cpu();
  config.run.device = DeviceKind::cuda;
  const MeshPlan plan = planned(config, 1);
  EXPECT_EQ(plan.peak_resident(), plan.peak_memory());
  EXPECT_THAT(memory_table(plan), Not(HasSubstr("resident")));
  EXPECT_FALSE(
      nlohmann::json::parse(json_report(plan, {}, nullptr, 1e9)).at("memory_bytes_per_rank").contains("process"));
}

TEST(ProcessMemory, HasTheCopyOfABackgroundSave) {
  Config config = small_on_cpu();
  const double before = planned(config, 1).ranks.front().memory.process;
  config.checkpoint.background = true;
  const RankMemory memory = planned(config, 1).ranks.front().memory;
  EXPECT_NEAR(memory.process - before, memory.weights + memory.optimizer, 1e3);
  for (const int zero : {0, 1}) {
    config = small_on_cpu();
    config.parallel.zero = zero;
    config.batch.micro = 1;
    const double alone = planned(config, 4).ranks.front().memory.process;
    config.checkpoint.background = true;
    const RankMemory shared = planned(config, 4).ranks.front().memory;
    EXPECT_NEAR(shared.process - alone, (memory.weights + memory.optimizer) / 4, 20e3)
        << "four copies divide what they save, with ZeRO " << zero;
  }
  config = small_on_cpu();
  config.checkpoint.background = true;
  resolve(config, 1);
  EXPECT_LT(plan_inference(config, 1, Reading::evaluate).ranks.front().memory.process, before + 1);
}

TEST(ProcessMemory, GrowsWithRanksAndTheAllocator) {
  Config config = small_on_cpu();
  const RankMemory one = planned(config, 1).ranks.front().memory;
  const RankMemory two = planned(config, 2).ranks.front().memory;
  EXPECT_GT(two.process + (one.total() - two.total()) / 16, one.process);
  config.batch.global = config.batch.micro = 64;
  const RankMemory larger = planned(config, 1).ranks.front().memory;
  EXPECT_NEAR(larger.process - one.process, (larger.total() - one.total()) / 16, 1);
}

}  // namespace
}  // namespace lyceum
