// Blocks of the wgmma kernels, emulated: loads, barriers, products and results together.
#include <gtest/gtest.h>

#include "kernels/cuda/grouped_wgmma_block.cuh"
#include "kernels/grouped_bank.h"
#include "kernels/host_plan.h"
#include "support/emulated_hopper.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Product;

EmulatedMap map_of(const grouped::Lines& lines, int box_lines) {
  return {static_cast<const std::byte*>(lines.data), lines.stride * 2, lines.width, lines.count, box_lines};
}

template <class Tiling>
struct WgmmaBlocks {
  template <Product product, bool picked>
  void run(const HostPlan& plan) const {
    constexpr int blocks = 2;
    std::vector<EmulatedMap> a_maps, b_maps;
    for (const grouped::Expert& expert : plan.ordered) {
      a_maps.push_back(map_of(grouped::lines_of_a(product, expert), a_along_k(product) ? Tiling::m : 64));
      b_maps.push_back(map_of(grouped::lines_of_b(product, expert), b_along_k(product) ? Tiling::n : 64));
    }
    EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, order);
    for (int index = 0; index < blocks; ++index) {
      block.run<EmulatedHopper>(
          [&](const EmulatedHopper& m) {
            grouped::run_block<product, picked, Tiling>(m, plan.view(), a_maps.data(), b_maps.data());
          },
          index, blocks);
    }
  }

  EmulatedBlock::Order order;
};

/// Widths of whole 16 bytes, as TMA wants them; depths of more stages than there are, columns of the narrow tiles.
const Case several{{200, 0, 64, 129, 7}, {72, 64, 40, 328, 16}, {264, 128, 8, 392, 24}, 8};
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
  expect_right_picked<Tiling, Product::forward>(several_copies, blocks);
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaWgmmaBlocks,
                         testing::Values(EmulatedBlock::Order::ascending, EmulatedBlock::Order::descending),
                         [](const auto& info) {
                           return info.param == EmulatedBlock::Order::ascending ? "Ascending" : "Descending";
                         });

}  // namespace
}  // namespace lyceum
