#include "model/model_tensors.h"

#include <gtest/gtest.h>

#include "config/check.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

TEST(TrainedValues, AreThoseThatPatternsName) {
  Config config = tiny_config();
  resolve(config, 1);
  const auto trained = [&](const std::string& pattern) {
    config.optim.train_only = {pattern};
    return count_trained_values(config);
  };
  const std::int64_t hidden = config.model.hidden, width = config.moe.expert_sizes[0];
  ASSERT_NE(width % 8, 0);
  EXPECT_EQ(trained("model/norm/weight"), hidden);
  EXPECT_EQ(trained("model/norm/weight[:3]"), 3);
  EXPECT_EQ(trained("model/layers/1/mlp/experts/0/down_proj/weight"), hidden * width);
  EXPECT_EQ(trained("model/layers/1/mlp/experts/0/down_proj/weight[1:4]"), 3 * width);
  EXPECT_EQ(trained("model/layers/1/mlp/experts/0/gate_proj/weight"), width * hidden);
  EXPECT_EQ(trained("model/layers/1/mlp/experts/0/up_proj/weight[:2]"), 2 * hidden);
}

}  // namespace
}  // namespace lyceum
