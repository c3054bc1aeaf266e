#pragma once

#include <cstdint>

#include "kernels/cuda/attention_schedule.cuh"
#include "support/emulated_machine.h"

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

}  // namespace lyceum::test
