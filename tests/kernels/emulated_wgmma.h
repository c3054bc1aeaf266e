#pragma once

#include <vector>

#include "kernels/cuda/grouped_wgmma_block.cuh"
#include "kernels/host_plan.h"
#include "support/emulated_hopper.h"

namespace lyceum::test {

/// Two blocks of a kernel of wgmma, emulated: loads, barriers, products and results together.
template <class Tiling, class Act = grouped::NoActivation>
struct WgmmaBlocks {
  template <grouped::Product product, grouped::Pick picked>
  void run(const HostPlan& plan) const {
    using Tile = grouped::TileOf<product, Act, Tiling>;
    constexpr int blocks = 2;
    std::vector<EmulatedMap> a_maps, b_maps;
    for (const grouped::Expert& expert : plan.ordered) {
      a_maps.push_back(map_of(grouped::lines_of_a(product, expert), Tile::a_lines));
      b_maps.push_back(map_of(grouped::lines_of_b(product, expert), Tile::b_lines));
    }
    EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, order);
    for (int index = 0; index < blocks; ++index) {
      block.run<EmulatedHopper>(
          [&](const EmulatedHopper& m) {
            grouped::run_block<product, picked, Act, Tiling>(m, plan.view(), a_maps.data(), b_maps.data());
          },
          index, blocks);
    }
  }

  EmulatedBlock::Order order;

 private:
  static EmulatedMap map_of(const grouped::Lines& lines, int box_lines) {
    return {static_cast<const std::byte*>(lines.data), lines.stride * 2, lines.width, lines.count, box_lines};
  }
};

}  // namespace lyceum::test
