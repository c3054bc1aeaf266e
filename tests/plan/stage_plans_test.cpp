#include "plan/stage_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/check.h"
#include "plan/report.h"
#include "plan/search.h"
#include "support/paper_models.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A run of three stages on two ranks: a larger batch, then longer sequences.
Config staged() {
  Config config;
  config.run.steps = 100;
  config.batch = {.global = 8, .micro = 0, .seq_len = 64};
  config.training_stages = {{.from_step = 21, .values = {{"batch.global", "16"}}},
                            {.from_step = 51, .values = {{"batch.global", "4"}, {"batch.seq_len", "256"}}}};
  resolve(config, 2);
  return config;
}

TEST(StagePlans, AddUp) {
  const Cluster cluster = default_cluster(Precision::f32);
  const Config config = staged();
  const MeshPlan first = plan_mesh(config, 2, cluster);
  const std::vector<StagePlan> stages = plan_stages(first, cluster);
  ASSERT_EQ(stages.size(), 3u);
  double tokens = 0, seconds = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Config own = config_of_stage(config, static_cast<int>(s) + 1);
    const MeshPlan plan = plan_mesh(own, 2, cluster);
    EXPECT_EQ(stages[s].plan.peak_memory(), plan.peak_memory());
    const auto steps = static_cast<double>(stages[s].last_step - stages[s].first_step + 1);
    EXPECT_EQ(stages[s].tokens(), steps * static_cast<double>(own.batch.global * own.batch.seq_len));
    tokens += stages[s].tokens();
    seconds += steps * plan.time->total();
  }
  EXPECT_EQ(tokens, 20 * 512 + 30 * 1024 + 50 * 1024);
  EXPECT_NEAR(seconds_of_run(stages, tokens), seconds, 1e-9 * seconds);
  EXPECT_NEAR(seconds_of_run(stages, 10 * 512), 10 * stages[0].plan.time->total(), 1e-9 * seconds);
  EXPECT_NEAR(seconds_of_run(stages, tokens + 1024), seconds + stages[2].plan.time->total(), 1e-9 * seconds);
  EXPECT_THAT(stages_report(stages), HasSubstr("21-50"));
  EXPECT_NEAR(Training(first, tokens, stages).seconds, seconds, 1e-9 * seconds);
  EXPECT_THAT(plan_stages(plan_mesh(config_of_stage(config, 2), 2, cluster), cluster), IsEmpty());
}

TEST(StagePlans, AllFitInTheMeshesOfASearch) {
  Config config = paper("deepseekmoe-2b");
  config.training_stages = {{.from_step = 101, .values = {{"batch.seq_len", "16384"}, {"batch.global", "256"}}}};
  const Cluster cluster = default_cluster(Precision::bf16);
  const SearchResult result = search_meshes(config, 16, cluster, {});
  Config alone = config;
  alone.training_stages.clear();
  EXPECT_GT(result.too_large, search_meshes(alone, 16, cluster, {}).too_large);
  ASSERT_FALSE(result.best.empty());
  for (const StagePlan& stage : plan_stages(result.best.front().plan, cluster)) {
    EXPECT_LE(stage.plan.peak_memory(), cluster.memory) << stage.stage;
  }
}

}  // namespace
}  // namespace lyceum
