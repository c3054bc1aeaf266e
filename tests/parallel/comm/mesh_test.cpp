#include "parallel/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "core/random.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

TEST(MeshTest, SixteenRanksByHand) {
  // 2 stages of 8 ranks: dp 4 · tp 2 for dense parameters, edp 2 · ep 4 · etp 1 for experts.
  const MeshShape shape{.pipeline = 2, .tensor = 2, .expert = 4};
  ASSERT_EQ(shape.problem(16), "");
  EXPECT_EQ(shape.data(16), 4);
  EXPECT_EQ(shape.expert_data(16), 2);
  EXPECT_EQ(shape.text(16), "pp2 dp4 tp2 · edp2 ep4 etp1");
  // pipeline, data, tensor, expert_data, expert, expert_tensor
  const MeshCoordinates table[16] = {{0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 1, 0}, {0, 1, 0, 0, 2, 0}, {0, 1, 1, 0, 3, 0},
                                     {0, 2, 0, 1, 0, 0}, {0, 2, 1, 1, 1, 0}, {0, 3, 0, 1, 2, 0}, {0, 3, 1, 1, 3, 0},
                                     {1, 0, 0, 0, 0, 0}, {1, 0, 1, 0, 1, 0}, {1, 1, 0, 0, 2, 0}, {1, 1, 1, 0, 3, 0},
                                     {1, 2, 0, 1, 0, 0}, {1, 2, 1, 1, 1, 0}, {1, 3, 0, 1, 2, 0}, {1, 3, 1, 1, 3, 0}};
  for (int rank = 0; rank < 16; ++rank) EXPECT_EQ(shape.index_of(rank, 16), table[rank]) << "rank " << rank;
}

TEST(MeshTest, ExpertTensorRanksAreAdjacent) {
  const MeshShape shape{.expert = 2, .expert_tensor = 2};
  const MeshCoordinates table[8] = {{0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 1}, {0, 2, 0, 0, 1, 0}, {0, 3, 0, 0, 1, 1},
                                    {0, 4, 0, 1, 0, 0}, {0, 5, 0, 1, 0, 1}, {0, 6, 0, 1, 1, 0}, {0, 7, 0, 1, 1, 1}};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(shape.index_of(rank, 8), table[rank]) << "rank " << rank;
}

TEST(MeshTest, OneRank) {
  EXPECT_EQ(MeshShape{}.problem(1), "");
  EXPECT_EQ(MeshShape{}.index_of(0, 1), MeshCoordinates{});
  EXPECT_EQ(MeshShape{}.text(1), "pp1 dp1 tp1 · edp1 ep1 etp1");
}

TEST(MeshTest, RandomShapesObeyTheFormulasAndMissNoPlace) {
  const Philox random(11, "shapes");
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const auto draw = [&](std::uint64_t axis) { return static_cast<int>(random.below(4, trial * 8 + axis)) + 1; };
    const MeshShape shape{.pipeline = draw(0), .tensor = draw(1), .expert = draw(2), .expert_tensor = draw(3)};
    const int stage = shape.tensor * shape.expert * shape.expert_tensor * draw(4), world = shape.pipeline * stage;
    ASSERT_EQ(shape.problem(world), "");
    const int dp = stage / shape.tensor, ep = shape.expert, etp = shape.expert_tensor;
    std::set<std::tuple<int, int, int>> dense, sparse;
    for (int rank = 0; rank < world; ++rank) {
      const MeshCoordinates at = shape.index_of(rank, world);
      ASSERT_EQ(rank, (at.pipeline * dp + at.data) * shape.tensor + at.tensor);
      ASSERT_EQ(rank % stage, (at.expert_data * ep + at.expert) * etp + at.expert_tensor);
      ASSERT_TRUE(at.data < dp && at.tensor < shape.tensor && at.expert < ep && at.expert_tensor < etp);
      if (at.pipeline == 0) {
        dense.emplace(at.data, at.tensor, 0);
        sparse.emplace(at.expert_data, at.expert, at.expert_tensor);
      }
    }
    ASSERT_EQ(static_cast<int>(dense.size()), stage);
    ASSERT_EQ(static_cast<int>(sparse.size()), stage);
  }
}

TEST(MeshTest, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(MeshShape{.pipeline = 3}.problem(8), HasSubstr("parallel.pipeline = 3 does not divide the 8 ranks"));
  EXPECT_THAT((MeshShape{.pipeline = 2, .tensor = 3}.problem(8)),
              HasSubstr("parallel.tensor = 3 does not divide the 4"));
  EXPECT_THAT((MeshShape{.expert = 4, .expert_tensor = 4}.problem(8)), HasSubstr("parallel.expert_tensor = 4 · 4"));
  EXPECT_THAT(MeshShape{.expert = 16}.problem(8), HasSubstr("parallel.expert = 16 is more than the 8 ranks"));
  EXPECT_THAT(MeshShape{.tensor = 0}.problem(8), HasSubstr("parallel.tensor = 0: must be at least 1"));
  EXPECT_THAT(MeshShape{.expert = -2}.problem(8), HasSubstr("parallel.expert = -2"));
  EXPECT_THAT(MeshShape{}.problem(0), HasSubstr("0 ranks"));
  const MeshShape huge{.expert = 1 << 20, .expert_tensor = 1 << 20};
  EXPECT_THAT(huge.problem(1 << 30), HasSubstr("does not divide"));
  EXPECT_THROW((MeshShape{.pipeline = 3}.index_of(0, 8)), Error);
  EXPECT_THROW(MeshShape{}.index_of(4, 4), Error);
}

}  // namespace
}  // namespace lyceum
