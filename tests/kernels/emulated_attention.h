#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/attention_schedule.cuh"
#include "support/emulated_block.h"

namespace lyceum::test {

/// Emulates a launch: runs work(machine, block) for every thread block. Blocks run in ascending or descending order,
/// like the warps within a block.
template <class Tiling, class Machine = EmulatedMachine, class Work>
void launch_emulated(const cuda::BlockOrder& blocks, EmulatedBlock::Order order, Work&& work) {
  EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, order);
  for (std::int64_t i = 0; i < blocks.blocks(); ++i) {
    const auto at = blocks.at(order == EmulatedBlock::Order::ascending ? i : blocks.blocks() - 1 - i);
    block.run<Machine>([&](const Machine& m) { work(m, at); });
  }
}

/// Emulates a launch whose blocks wait for earlier blocks of the same head. The blocks of a head always run in
/// ascending order; in descending order, heads run from the last to the first.
template <class Tiling, class Machine, class Work>
void launch_emulated_turns(const cuda::BlockOrder& blocks, EmulatedBlock::Order order, Work&& work) {
  std::vector<cuda::BlockOrder::Block> places;
  for (std::int64_t i = 0; i < blocks.blocks(); ++i) places.push_back(blocks.at(i));
  if (order == EmulatedBlock::Order::descending) {
    std::ranges::stable_sort(places, std::ranges::greater(), &cuda::BlockOrder::Block::head);
  }
  EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, order);
  for (const auto& at : places) block.run<Machine>([&](const Machine& m) { work(m, at); });
}

}  // namespace lyceum::test
