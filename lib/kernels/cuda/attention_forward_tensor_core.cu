#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/gpu.h"

namespace lyceum::cuda {

namespace {

template <class Tiling>
struct Forward {
  using Task = ForwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = fits_hopper_forward(Tiling::dim);
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    attention_forward<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct HopperForward {
  using Task = ForwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(const HopperMachine& m, const Task& task, const BlockOrder::Block& block) {
    attention_forward_hopper<Tiling>(m, task, block);
  }
};

template <class Tiling, class Kernel>
void start_forward(const CudaStream& stream, Kernel* kernel, const ForwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  start_blocks(stream, "AttentionForward", kernel, Tiling::threads, Tiling::shared_bytes, task,
               query_order(shape, Tiling::rows, section_of(shape.key_len, shape.head_dim + shape.value_cols())));
}

}  // namespace

bool run_on_tensor_cores(const CudaStream& stream, const ForwardTask<bfloat16>& task) {
  if (task.shape.widest() > max_tiled_dim) return false;
  if (fits_hopper_forward(task.shape) && can_run_hopper_kernels(stream)) {
    with_hopper_forward_tiling(task.shape, [&]<class Tiling>() {
      start_forward<Tiling>(stream, hopper_attention_kernel<HopperForward<Tiling>>, task);
    });
  } else {
    with_tilings(task.shape, [&]<class Tilings>() {
      using Tiling = typename Tilings::Forward;
      start_forward<Tiling>(stream, attention_kernel<Forward<Tiling>>, task);
    });
  }
  return true;
}

}  // namespace lyceum::cuda
