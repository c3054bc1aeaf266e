#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/grouped_wgmma_block.cuh"
#include "kernels/host_plan.h"
#include "support/emulated_hopper.h"

namespace lyceum::test {

/// Emulates a grouped product by a wgmma kernel with a few thread blocks, or clusters of blocks: loads, barriers,
/// products and results together.
template <class Tiling, class Act = grouped::NoActivation>
struct WgmmaBlocks {
  template <grouped::Product product, grouped::Pick picked>
  void run(const HostPlan& plan) const {
    using Tile = grouped::TileOf<product, Act, Tiling>;
    const int blocks = clusters * Tiling::cluster;
    std::vector<EmulatedMap> a_maps, b_maps, c_maps;
    for (const grouped::Expert& expert : plan.ordered) {
      a_maps.push_back(map_of(grouped::lines_of_a(product, expert), Tile::a_lines));
      b_maps.push_back(map_of(grouped::lines_of_b(product, expert), Tile::b_lines));
      if constexpr (Tiling::result_bytes > 0) {
        c_maps.push_back(map_of({expert.c, expert.c_stride, expert.n, expert.m}, Tiling::result_lines));
      }
    }
    const grouped::MapsBySlot<EmulatedMap> maps{a_maps.data(), b_maps.data(), c_maps.data()};
    std::vector<std::unique_ptr<EmulatedBlock>> owned;
    EmulatedBlock::Cluster cluster;
    for (int i = 0; i < Tiling::cluster; ++i) {
      owned.push_back(std::make_unique<EmulatedBlock>(Tiling::threads, Tiling::shared_bytes, order));
      cluster.push_back(owned.back().get());
    }
    for (int index = 0; index < blocks; index += Tiling::cluster) {
      EmulatedBlock::run_cluster<EmulatedHopper>(
          cluster,
          [&](const EmulatedHopper& m) { grouped::run_block<product, picked, Act, Tiling>(m, plan.view(), maps); },
          index, blocks);
    }
  }

  EmulatedBlock::Order order;
  int clusters = 2;  // of Tiling::cluster blocks

 private:
  static EmulatedMap map_of(const grouped::Lines& lines, int box_lines) {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(lines.data));
    return {data, lines.stride * 2, lines.width, lines.count, box_lines};
  }
};

}  // namespace lyceum::test
