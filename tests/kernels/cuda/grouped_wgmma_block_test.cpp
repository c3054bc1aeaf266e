// Tests the wgmma kernels on emulated thread blocks: loads, barriers, products and results together.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/emulated_wgmma.h"
#include "kernels/grouped_bank.h"
#include "kernels/host_plan.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Product;

/// Widths are multiples of 16 bytes, as TMA requires. Some sums have more steps than the pipeline has stages, and some
/// results need narrow tiles.
const Case several{{200, 0, 64, 129, 7}, {72, 64, 40, 328, 16}, {264, 128, 8, 392, 24}, 8};
/// Results whose widths TMA cannot store.
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
  expect_right_tiles<Tiling>(several, blocks);
  expect_right_picked_tiles<Tiling>(several_copies, blocks);
}

TEST_P(CudaWgmmaBlocks, ClustersAgreeWithTheReference) {
  using Tiling = grouped::ClusteredTiling;
  using Tile = grouped::TileOf<Product::forward, grouped::NoActivation, Tiling>;  // the same as for dgrad
  const WgmmaBlocks<Tiling> blocks{GetParam()};
  expect_right_rows<Tile, Product::forward>(several, blocks);
  expect_right_rows<Tile, Product::dgrad>(several, blocks);
  expect_right_rows<Tile, Product::forward>(odd_outputs, blocks);
  expect_right_picked<Tile, Picking::forward>(several_copies, blocks);
  expect_right_picked<Tile, Picking::dgrad>(several_copies, blocks);
}

TEST_P(CudaWgmmaBlocks, PingPongGroupsInClustersAddWeightGradients) {
  using Tiling = grouped::ClusteredPingPongTiling;
  using Tile = grouped::TileOf<Product::weight_grad, grouped::NoActivation, Tiling>;
  const WgmmaBlocks<Tiling> blocks{GetParam()};
  expect_right_gradients<Tile>(several, blocks);
  expect_right_picked<Tile, Picking::weight_grad_dy>(several_copies, blocks);
}

TEST_P(CudaWgmmaBlocks, ReplaceGradients) {
  const WgmmaBlocks<grouped::CooperativeTiling> cooperative{GetParam()};
  const WgmmaBlocks<grouped::PingPongTiling> ping_pong{GetParam()};
  const WgmmaBlocks<grouped::ClusteredPingPongTiling> clustered{GetParam()};
  expect_written_gradients<grouped::CooperativeTiling>(cooperative);
  expect_written_gradients<grouped::PingPongTiling>(ping_pong);
  using Tile = grouped::TileOf<Product::weight_grad, grouped::NoActivation, grouped::ClusteredPingPongTiling>;
  expect_written_gradients<Tile>(clustered);
  expect_right_picked<grouped::CooperativeTiling, Picking::weight_grad_x>(to_write, cooperative, false);
  expect_right_picked<grouped::PingPongTiling, Picking::weight_grad_x>(to_write, ping_pong, false);
}

template <class Tiling, Product... products>
void check_numbers_of_blocks() {
  using Tile = grouped::TileOf<Product::forward, grouped::NoActivation, Tiling>;
  constexpr auto order = EmulatedBlock::Order::ascending;
  (expect_same_bits<Tile, products>(several, WgmmaBlocks<Tiling>{order}, WgmmaBlocks<Tiling>{order, 5}), ...);
}
TEST(CudaWgmmaGrid, ResultsDoNotDependOnTheNumberOfBlocks) {
  check_numbers_of_blocks<grouped::CooperativeTiling, Product::forward>();
  check_numbers_of_blocks<grouped::PingPongTiling, Product::forward, Product::weight_grad>();
  check_numbers_of_blocks<grouped::ClusteredTiling, Product::dgrad>();
}

/// Padding rows become 0 even if weights are NaN.
template <class Tiling>
void check_padding(EmulatedBlock::Order order) {
  using Tile = grouped::TileOf<Product::forward, grouped::NoActivation, Tiling>;
  constexpr grouped::Pick none = grouped::Pick::none;
  auto bank = Bank<bfloat16>::made<bfloat16>({5, 70}, {72, 64}, {16, 72}, true, false, 8);
  for (const auto& weight : bank.owned) weight->view().row(3)[1] = bfloat16(std::numeric_limits<float>::quiet_NaN());
  WgmmaBlocks<Tiling>{order}.template run<Product::forward, none>(
      HostPlan::of<Product::forward, none>(bank, Tile::m, Tile::n));
  for (std::int64_t e = 0; e < 2; ++e) {
    const auto y = bank.y_of(e);
    const auto filled = bank.table.view().rows[static_cast<std::size_t>(e)];
    for (std::int64_t r = 0; r < filled; ++r) EXPECT_TRUE(std::isnan(static_cast<float>(y.row(r)[3])));
    for (std::int64_t r = filled; r < y.rows; ++r) {
      for (std::int64_t c = 0; c < y.cols; ++c) EXPECT_EQ(y.row(r)[c].bits, 0) << "expert " << e << ", row " << r;
    }
  }
}
TEST_P(CudaWgmmaBlocks, PaddingRowsAreZerosBesideWeightsThatAreNan) {
  check_padding<grouped::CooperativeTiling>(GetParam());
  check_padding<grouped::PingPongTiling>(GetParam());
  check_padding<grouped::ClusteredTiling>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaWgmmaBlocks,
                         testing::Values(EmulatedBlock::Order::ascending, EmulatedBlock::Order::descending),
                         [](const auto& info) {
                           return info.param == EmulatedBlock::Order::ascending ? "Ascending" : "Descending";
                         });

}  // namespace
}  // namespace lyceum
