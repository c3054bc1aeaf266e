// Tests the tiles of the CUDA kernels for grouped products and their plan, emulated on the host.
#include "kernels/cuda/grouped_tiles.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda_host_block.h"
#include "kernels/grouped_bank.h"
#include "kernels/host_plan.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Pick, grouped::Product;

/// Emulates the kernels.
struct MmaBlocks {
  template <Product product, Pick picked>
  void run(const HostPlan& plan) const {
    using Tiling = grouped::MmaTiling;
    for (int index = 0; index < blocks; ++index) {
      HostMmaBlock block;
      each_tile<Tiling>(plan.view(), index, blocks,
                        [&](std::int32_t, const grouped::Expert& expert, grouped::Corner corner) {
                          grouped::MmaTile<product, picked, HostMmaBlock>(block, expert, corner).run();
                        });
      EXPECT_EQ(block.races(), 0);
    }
  }

  int blocks = 3;
};

/// Some weights are aligned, some are not.
const Case mixed{aligned.rows, aligned.in, aligned.out, 1};

class CudaTiles : public testing::TestWithParam<Case> {};

TEST_P(CudaTiles, AgreeWithTheReference) { expect_right_tiles<grouped::MmaTiling>(GetParam(), MmaBlocks()); }

INSTANTIATE_TEST_SUITE_P(Cases, CudaTiles, testing::Values(uneven, all_empty, one, aligned, mixed));

TEST(CudaTiles, ReplaceGradients) {
  expect_written_gradients<grouped::MmaTiling>(MmaBlocks());
  expect_right_picked<grouped::MmaTiling, Picking::weight_grad_x>(to_write, MmaBlocks(), false);
  expect_right_gradients<grouped::MmaTiling>(uneven, MmaBlocks(), false);
}

TEST(CudaTiles, ResultsDoNotDependOnTheNumberOfBlocks) {
  for (const int blocks : {1, 8}) {
    expect_same_bits<grouped::MmaTiling, Product::forward>(mixed, MmaBlocks{}, MmaBlocks{blocks});
    expect_same_bits<grouped::MmaTiling, Product::weight_grad>(mixed, MmaBlocks{}, MmaBlocks{blocks});
  }
}

class CudaPickedTiles : public testing::TestWithParam<Case> {};

TEST_P(CudaPickedTiles, AgreeWithTheReference) {
  expect_right_picked_tiles<grouped::MmaTiling>(GetParam(), MmaBlocks());
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaPickedTiles, testing::Values(copies, aligned_copies, all_empty, one));

TEST(CudaTilePlan, EveryTileIsTakenOnceAndTheDearestFirst) {
  std::vector<grouped::Expert> experts(7);
  const int m[] = {130, 0, 1, 256, 128, 0, 500}, n[] = {300, 64, 7, 128, 0, 5, 129}, k[] = {64, 9, 853, 64, 64, 0, 100};
  for (std::size_t e = 0; e < experts.size(); ++e) experts[e].m = m[e], experts[e].n = n[e], experts[e].k = k[e];
  const HostPlan plan(experts, 128, 256);
  std::vector<std::vector<int>> covered(experts.size());
  for (std::int32_t tile = 0, slot = 0; tile < plan.first_tile.back(); ++tile) {
    slot = grouped::slot_of(plan.first_tile.data(), slot, tile);
    const grouped::Expert& expert = plan.ordered[static_cast<std::size_t>(slot)];
    const auto corner = grouped::corner_of(expert, tile - plan.first_tile[static_cast<std::size_t>(slot)], 128, 256);
    EXPECT_TRUE(corner.m < expert.m && corner.n < expert.n);
    covered[static_cast<std::size_t>(slot)].push_back(corner.m * 1000 + corner.n);
  }
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    const grouped::Expert& expert = plan.ordered[slot];
    EXPECT_LE(expert.k, plan.ordered[slot == 0 ? 0 : slot - 1].k);
    std::vector<int> all;
    for (int row = 0; row < expert.m; row += 128) {
      for (int col = 0; col < expert.n; col += 256) all.push_back(row * 1000 + col);
    }
    EXPECT_EQ(covered[slot], all);
  }
}

TEST(CudaTilePlan, AnExpertWithoutRowsKeepsItsGradient) {
  auto bank = Bank<bfloat16>::made<bfloat16>({0, 3}, {8, 8}, {8, 8}, false, true);
  const std::vector<float> before(bank.gradients[0].row(0), bank.gradients[0].row(8));
  MmaBlocks().run<Product::weight_grad, Pick::none>(
      HostPlan::of<Product::weight_grad, Pick::none>(bank, grouped::MmaTiling::m, grouped::MmaTiling::n));
  EXPECT_EQ(std::vector<float>(bank.gradients[0].row(0), bank.gradients[0].row(8)), before);
}

}  // namespace
}  // namespace lyceum
