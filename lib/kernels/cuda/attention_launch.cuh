#pragma once

#include "kernels/cuda/attention_tilings.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/machine_hopper.cuh"

// How the tensor cores' kernels of attention are launched: a Work says how many threads a block has, and what one of
// them does, run(machine, task, block).

namespace lyceum::cuda {

template <class Work>
__global__ void __launch_bounds__(Work::threads)
    attention_kernel(const __grid_constant__ typename Work::Task task, const __grid_constant__ BlockOrder order) {
  Work::run(Machine(launched_shared()), task, order.at(blockIdx.x));
}

/// Of Hopper GPUs; launched nowhere else.
template <class Work>
__global__ void __launch_bounds__(Work::threads)
    hopper_attention_kernel(const __grid_constant__ typename Work::Task task,
                            const __grid_constant__ BlockOrder order) {
#ifdef LYCEUM_HOPPER
  Work::run(HopperMachine(launched_shared()), task, order.at(blockIdx.x));
#else
  __trap();
#endif
}

template <class Task>
void start_blocks(const CudaStream& stream, const char* name, void (*kernel)(Task, BlockOrder), int threads,
                  int shared_bytes, const Task& task, const BlockOrder& order) {
  require(order.blocks() <= 0x7fffffff, "{}: {} blocks of threads are more than a launch may have", name,
          order.blocks());
  start_shared(stream, name, kernel, static_cast<unsigned>(order.blocks()), static_cast<unsigned>(threads),
               static_cast<std::size_t>(shared_bytes), task, order);
}

}  // namespace lyceum::cuda
