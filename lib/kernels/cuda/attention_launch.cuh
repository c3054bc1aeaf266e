#pragma once

#include "kernels/cuda/attention_tilings.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/machine_hopper.cuh"

// Launches of the tensor core kernels of attention. A Work type has `Task` (the kernel's parameter), `threads` (per
// block), run(machine, task, block), which computes one block's part, and `not_on_hopper`, which is true if Hopper GPUs
// use another kernel for the same task.

namespace lyceum::cuda {

#ifdef LYCEUM_HOPPER
inline constexpr bool compiles_for_hopper = true;
#else
inline constexpr bool compiles_for_hopper = false;
#endif

/// Kernel for tensor cores of compute capability 8.0. One thread block per block of `order`.
template <class Work>
__global__ void __launch_bounds__(Work::threads)
    attention_kernel(const __grid_constant__ typename Work::Task task, const __grid_constant__ BlockOrder order) {
  if constexpr (Work::not_on_hopper && compiles_for_hopper) {
    __trap();  // on Hopper, hopper_attention_kernel is launched instead
  } else {
    Work::run(Machine(launched_shared()), task, order.at(blockIdx.x));
  }
}

/// Kernel for Hopper GPUs (sm_90a) only. The second argument of __launch_bounds__, at least one block per
/// multiprocessor, is there because ptxas ignores setmaxnreg without it.
template <class Work>
__global__ void __launch_bounds__(Work::threads, 1)
    hopper_attention_kernel(const __grid_constant__ typename Work::Task task,
                            const __grid_constant__ BlockOrder order) {
#ifdef LYCEUM_HOPPER
  Work::run(HopperMachine(launched_shared()), task, order.at(blockIdx.x));
#else
  __trap();
#endif
}

/// Launches `kernel` with one thread block per block of `order`. Throws an Error if these are too many for a launch.
template <class Task>
void start_blocks(const CudaStream& stream, const char* name, void (*kernel)(Task, BlockOrder), int threads,
                  int shared_bytes, const Task& task, const BlockOrder& order) {
  require(order.blocks() <= 0x7fffffff, "{}: a launch cannot have {} thread blocks", name, order.blocks());
  start_shared(stream, name, kernel, static_cast<unsigned>(order.blocks()), static_cast<unsigned>(threads),
               static_cast<std::size_t>(shared_bytes), task, order);
}

}  // namespace lyceum::cuda
