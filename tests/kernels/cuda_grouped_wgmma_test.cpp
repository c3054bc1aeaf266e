// Blocks of the wgmma kernels, emulated: loads, barriers, products and results together.
#include <gtest/gtest.h>

#include "kernels/emulated_wgmma.h"
#include "kernels/grouped_bank.h"
#include "kernels/host_plan.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Product;

/// Widths of whole 16 bytes, as TMA wants them; depths of more stages than there are, columns of the narrow tiles.
const Case several{{200, 0, 64, 129, 7}, {72, 64, 40, 328, 16}, {264, 128, 8, 392, 24}, 8};
/// Results that no store of boxes can write.
const Case odd_outputs{{150, 40, 3}, {72, 16, 64}, {13, 264, 257}, 8};
const Case several_copies{{200, 0, 129, 1, 330}, Widths(5, 328), {264, 128, 392, 24, 40}, 8};

class CudaWgmmaBlocks : public testing::TestWithParam<EmulatedBlock::Order> {};

TEST_P(CudaWgmmaBlocks, CooperativeGroupsAgreeWithTheReference) {
  using Tiling = grouped::CooperativeTiling;
  const WgmmaBlocks<Tiling> blocks{GetParam()};
  expect_right_tiles<Tiling>(several, blocks);
  expect_right_picked_tiles<Tiling>(several_copies, blocks);
}

TEST_P(CudaWgmmaBlocks, PingPongGroupsAgreeWithTheReference) {
  using Tiling = grouped::PingPongTiling;
  const WgmmaBlocks<Tiling> blocks{GetParam()};
  expect_right_rows<Tiling, Product::forward>(several, blocks);
  expect_right_rows<Tiling, Product::dgrad>(several, blocks);
  expect_right_picked<Tiling, Picking::forward>(several_copies, blocks);
  expect_right_picked<Tiling, Picking::dgrad>(several_copies, blocks);
}

TEST_P(CudaWgmmaBlocks, ClustersAgreeWithTheReference) {
  using Tiling = grouped::ClusteredTiling;
  using Tile = grouped::TileOf<Product::forward, grouped::NoActivation, Tiling>;  // as that of dgrad
  const WgmmaBlocks<Tiling> blocks{GetParam()};
  expect_right_rows<Tile, Product::forward>(several, blocks);
  expect_right_rows<Tile, Product::dgrad>(several, blocks);
  expect_right_rows<Tile, Product::forward>(odd_outputs, blocks);
  expect_right_picked<Tile, Picking::forward>(several_copies, blocks);
  expect_right_picked<Tile, Picking::dgrad>(several_copies, blocks);
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaWgmmaBlocks,
                         testing::Values(EmulatedBlock::Order::ascending, EmulatedBlock::Order::descending),
                         [](const auto& info) {
                           return info.param == EmulatedBlock::Order::ascending ? "Ascending" : "Descending";
                         });

}  // namespace
}  // namespace lyceum
