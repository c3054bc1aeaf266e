#include "config/mtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/continuation.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

TEST(ConfigProblems, impossible_modules_are_reported) {
  expect_each_reported({
      {[](Config& c) { c.mtp.depth = -1; }, {"mtp.depth = -1: must be in [0, 10000]"}},
      {[](Config& c) { c.mtp.depth = c.batch.seq_len; }, {"mtp.depth = ", "below batch.seq_len"}},
      {[](Config& c) {
         c.mtp.depth = 9;
         c.batch.seq_len = 4;
       },
       {"mtp.depth = 9 with batch.seq_len = 4"}},
      {[](Config& c) { c.mtp.weight = -0.1; }, {"mtp.weight = -0.1: must be in [0, 10000]"}},
  });
  Config config = sparse();
  config.mtp.depth = config.batch.seq_len - 1;
  EXPECT_THAT(problems(config, 4), testing::IsEmpty());
}

TEST(Mtp, BlocksOfModulesAreLikeTheLastOne) {
  Config config = sparse();
  config.model.layers = 5;
  EXPECT_EQ(all_blocks(config), 5);
  config.mtp.depth = 2;
  EXPECT_EQ(all_blocks(config), 7);
  EXPECT_EQ(block_like(config.model, 3), 3);
  EXPECT_EQ(block_like(config.model, 4), 4);
  EXPECT_EQ(block_like(config.model, 6), 4);
  config.model.window = 8;
  config.model.window_layers = {1, 0};
  EXPECT_EQ(window_of(config.model, 4), 8);
  EXPECT_EQ(window_of(config.model, 5), 8) << "as the last block, not as an odd one";
}

TEST(Mtp, TheWeightMayChangeOnResumeAndTheDepthMayNot) {
  Config before = sparse();
  resolve(before, 1);
  Config now = before;
  now.mtp.weight = 0.1;
  EXPECT_THAT(changes(before, now), testing::IsEmpty()) << "there are no modules";
  before.mtp.depth = now.mtp.depth = 1;
  ASSERT_EQ(changes(before, now).size(), 1u);
  EXPECT_EQ(changes(before, now).front().role, KeyRole::tuning);
  now = before;
  now.mtp.depth = 2;
  ASSERT_EQ(changes(before, now).size(), 1u);
  EXPECT_EQ(changes(before, now).front().role, KeyRole::identity);
}

}  // namespace
}  // namespace lyceum
