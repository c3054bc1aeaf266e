#include "config/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

using testing::IsEmpty;

TEST(ConfigProblems, impossible_meshes_and_batches_are_reported) {
  expect_each_reported({
      {[](Config& c) { c.batch.global = 6; }, {"batch.global = 6 cannot be divided among 4 data-parallel ranks"}},
      {[](Config& c) { c.batch.global = 3; }, {"batch.global = 3"}, 2},
      {[](Config& c) { c.batch.micro = 4; }, {"batch.micro = 4 does not divide the 2 sequences"}},
      {[](Config& c) { c.batch.global = 0; }, {"batch.global = 0: must be >= 1"}},
      {[](Config& c) { c.parallel.expert = 3; }, {"parallel.expert = 3", "does not divide the 4 ranks"}},
      {[](Config& c) { c.parallel.expert = 8; }, {"parallel.expert = 8", "does not divide the 4 ranks"}},
      {[](Config& c) { c.parallel.expert = 0; }, {"parallel.expert = 0: must be >= 1"}},
  });
}

TEST(ConfigProblems, batches_that_cannot_overlap_are_reported) {
  const auto overlapping = [](Config& c) {
    c.parallel.expert = 2;
    c.parallel.overlap = Overlap::batches;
    c.batch.micro = 1;
  };
  expect_each_reported({
      {[&](Config& c) {
         overlapping(c);
         c.batch.micro = 0;
       },
       {"parallel.overlap = batches with one micro-batch of 2 sequences per step", "set a smaller batch.micro"}},
      {[&](Config& c) {
         overlapping(c);
         c.parallel.pipeline = 2;
       },
       {"parallel.overlap = batches with parallel.pipeline = 2", "parallel.overlap = shared"}},
      {[&](Config& c) {
         overlapping(c);
         c.parallel.schedule = ScheduleKind::gpipe;
       },
       {"parallel.overlap = batches with parallel.schedule = gpipe: set parallel.schedule = 1f1b"}},
      {[&](Config& c) {
         overlapping(c);
         c.parallel.zero = 3;
       },
       {"parallel.overlap = batches with parallel.zero = 3", "set parallel.zero = 2"}},
  });
  Config config = sparse();
  overlapping(config);
  for (const int zero : {0, 1, 2}) {
    config.parallel.zero = zero;
    EXPECT_THAT(problems(config, 4), IsEmpty());
  }
  config.parallel = {.pipeline = 2, .zero = 3, .overlap = Overlap::batches};  // no tokens are exchanged
  EXPECT_THAT(problems(config, 4), IsEmpty());
}

TEST(ConfigProblems, shares_of_tensor_ranks_that_do_not_come_out_are_reported) {
  expect_each_reported({
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.heads = 2;
       },
       {"parallel.tensor = 4 does not divide model.heads = 2"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.kv_heads = 2;
       },
       {"parallel.tensor = 4 does not divide model.kv_heads = 2"}},
      {[](Config& c) { c.parallel.tensor = c.model.heads = 8; }, {"4 ranks do not split", "parallel.tensor = 8"}},
      {[](Config& c) { c.parallel.tensor = 0; }, {"parallel.tensor = 0: must be >= 1"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.vocab = 3;
       },
       {"parallel.tensor = 4 is more than model.vocab = 3"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.ffn_hidden = 3;
       },
       {"parallel.tensor = 4 is more than model.ffn_hidden = 3"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.moe.expert_hidden = 3;
       },
       {"parallel.tensor = 4 is more than moe.shared_experts times moe.expert_hidden = 3"}},
      {[](Config& c) {
         c.parallel.expert_tensor = 4;
         c.moe.expert_hidden = 3;
       },
       {"parallel.expert_tensor = 4 is more than moe.expert_hidden = 3"}},
      {[](Config& c) {
         c.parallel.expert_tensor = 4;
         c.moe.expert_sizes = std::vector<std::int64_t>(15, 9);
         c.moe.expert_sizes[7] = 2;
       },
       {"parallel.expert_tensor = 4 is more than the smallest of moe.expert_sizes = 2"}},
      {[](Config& c) { c.parallel.expert_tensor = 3; }, {"parallel.expert_tensor = 3 does not divide the 4 ranks"}},
      {[](Config& c) {
         c.moe = {};
         c.parallel.expert_tensor = 2;
       },
       {"parallel.expert_tensor = 2 with no experts"}},
  });
}

TEST(ConfigProblems, impossible_pipelines_are_reported) {
  const auto interleave = [](Config& c, int pipeline, int chunks) {
    c.parallel.schedule = ScheduleKind::interleaved;
    c.parallel.pipeline = pipeline;
    c.parallel.virtual_stages = chunks;
  };
  expect_each_reported({
      {[](Config& c) { c.parallel.pipeline = 3; }, {"4 ranks do not split into parallel.pipeline = 3"}},
      {[](Config& c) { c.parallel.pipeline = 8; }, {"parallel.pipeline = 8", "more than model.layers = 4"}, 8},
      {[](Config& c) { c.parallel.virtual_stages = 2; }, {"parallel.virtual_stages = 2 with parallel.schedule = 1f1b"}},
      {[](Config& c) { c.parallel.virtual_stages = 0; }, {"parallel.virtual_stages = 0: must be >= 1"}},
      {[&](Config& c) { interleave(c, 1, 2); },
       {"parallel.pipeline = 1 and parallel.virtual_stages = 2: both must be"}},
      {[&](Config& c) {
         interleave(c, 2, 1);
         c.batch.micro = 1;
       },
       {"parallel.pipeline = 2 and parallel.virtual_stages = 1: both must be"}},
      {[&](Config& c) {
         interleave(c, 4, 2);
         c.batch.micro = c.batch.global / 4;
       },
       {"parallel.pipeline = 4 times parallel.virtual_stages = 2 is more than model.layers = 4"}},
      {[&](Config& c) { interleave(c, 2, 2); }, {"groups of parallel.pipeline = 2, which does not divide the 1 of"}},
  });
}

TEST(ConfigProblems, uneven_shares_of_widths_and_words_pass) {
  Config config = sparse();
  config.model.vocab = 4099;
  config.model.ffn_hidden = 341;
  config.moe.expert_hidden = 65;
  config.batch.seq_len = 7;
  config.parallel.tensor = 4;
  config.parallel.expert = 2;
  config.parallel.expert_tensor = 4;
  config.parallel.sequence = true;
  EXPECT_THAT(problems(config, 8), IsEmpty());
}

}  // namespace
}  // namespace lyceum
