#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/gpu.h"

namespace lyceum::cuda {

namespace {

template <class Tiling>
struct Dq {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = fits_hopper(Tiling::dim);
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    attention_dq<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct Dkv {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = fits_hopper(Tiling::dim);
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    attention_dkv<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct HopperDq {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(const HopperMachine& m, const Task& task, const BlockOrder::Block& block) {
    attention_dq_hopper<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct HopperDkv {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(const HopperMachine& m, const Task& task, const BlockOrder::Block& block) {
    attention_dkv_hopper<Tiling>(m, task, block);
  }
};

template <class Tiling, class Kernel>
void start_dq(const CudaStream& stream, Kernel* kernel, const BackwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  start_blocks(stream, "AttentionBackward", kernel, Tiling::threads, Tiling::shared_bytes, task,
               query_order(shape, Tiling::rows, section_of(shape.key_len, 2 * shape.head_dim)));
}

template <class Tiling, class Kernel>
void start_dkv(const CudaStream& stream, Kernel* kernel, const BackwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  const std::int64_t seeing = shape.heads / shape.kv_heads * shape.query_len;
  start_blocks(stream, "AttentionBackward", kernel, Tiling::threads, Tiling::shared_bytes, task,
               key_order(shape, Tiling::rows, section_of(seeing, 2 * shape.head_dim)));
}

}  // namespace

bool run_on_tensor_cores(const CudaStream& stream, const BackwardTask<bfloat16>& task) {
  const std::int64_t dim = task.shape.head_dim;
  if (dim > max_tiled_dim) return false;
  if (fits_hopper(dim) && hopper_is_here(stream)) {
    with_hopper_tilings(dim, [&]<class Tilings>() {
      start_dq<typename Tilings::Dq>(stream, hopper_attention_kernel<HopperDq<typename Tilings::Dq>>, task);
      start_dkv<typename Tilings::Dkv>(stream, hopper_attention_kernel<HopperDkv<typename Tilings::Dkv>>, task);
    });
  } else {
    with_tilings(dim, [&]<class Tilings>() {
      start_dq<typename Tilings::Dq>(stream, attention_kernel<Dq<typename Tilings::Dq>>, task);
      start_dkv<typename Tilings::Dkv>(stream, attention_kernel<Dkv<typename Tilings::Dkv>>, task);
    });
  }
  return true;
}

}  // namespace lyceum::cuda
