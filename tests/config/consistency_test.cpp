#include "config/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/continuation.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

/// Returns a change of sparse() to copies of samples, followed by another change.
std::function<void(Config&)> with_copies(const std::function<void(Config&)>& change) {
  return [=](Config& c) {
    c.batch = {.global = 16, .micro = 2, .seq_len = 8};
    c.model.consistency = 5;
    change(c);
  };
}

TEST(ConfigProblems, impossible_copies_of_samples_are_reported) {
  expect_each_reported({
      {[](Config& c) { c.model.consistency = -1; }, {"model.consistency = -1: must be in [0, 10000]"}},
      {with_copies([](Config& c) { c.model.loss_chunk = 8; }),
       {"model.loss_chunk = 8 with model.consistency, which compares the logits of whole sequences: set "
        "model.loss_chunk = 0"}},
      {with_copies([](Config& c) { c.batch.micro = 1; }),
       {"model.consistency = 5 needs both copies of a sample in one micro-batch, but a rank's micro-batches have 1 "
        "sequence: set an even batch.micro"}},
      {with_copies([](Config& c) {
         c.batch.global = 12;
         c.batch.micro = 0;
       }),
       {"a rank's micro-batches have 3 sequences", "set batch.global to a multiple of 8 and an even batch.micro"}},
  });
  Config config = sparse();
  with_copies([](Config&) {})(config);
  EXPECT_THAT(problems(config, 4), testing::IsEmpty());
}

TEST(Consistency, AStepReadsEachSampleTwice) {
  Config config;
  config.batch.global = 16;
  EXPECT_EQ(sample_copies(config), 1);
  EXPECT_EQ(samples_per_step(config), 16);
  config.model.consistency = 0.5;
  EXPECT_EQ(sample_copies(config), 2);
  EXPECT_EQ(samples_per_step(config), 8);
}

TEST(Consistency, TheWeightMayChangeWhenARunContinues) {
  Config before = sparse();
  resolve(before, 1);
  Config now = before;
  now.model.consistency = 1;
  ASSERT_EQ(changes(before, now).size(), 1u);
  EXPECT_EQ(changes(before, now)[0].role, KeyRole::tuning);
}

}  // namespace
}  // namespace lyceum
