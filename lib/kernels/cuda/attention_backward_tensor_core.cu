#include "core/allocator.h"
#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/gpu.h"

namespace lyceum::cuda {

namespace {

template <class Tiling>
struct Dq {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = fits_hopper_backward(Tiling::dim);
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    attention_dq<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct Dkv {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = fits_hopper_backward(Tiling::dim);
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    attention_dkv<Tiling>(m, task, block);
  }
};

/// Kernel for Hopper GPUs (sm_90a) only. See hopper_attention_kernel for the second argument of __launch_bounds__.
template <class Tiling>
__global__ void __launch_bounds__(Tiling::threads, 1)
    hopper_backward_kernel(const __grid_constant__ HopperBackwardTask task, const __grid_constant__ BlockOrder order) {
#ifdef LYCEUM_HOPPER
  attention_backward_hopper<Tiling>(HopperMachine(launched_shared()), task, order);
#else
  __trap();
#endif
}

/// The number of rows of q that one key head is multiplied with, over all its query heads.
std::int64_t queries_of_key(const AttentionShape& shape) { return shape.heads / shape.kv_heads * shape.query_len; }

template <class Tilings>
void start_dq_and_dkv(const CudaStream& stream, const BackwardTask<bfloat16>& task) {
  using DqTiles = typename Tilings::Dq;
  using DkvTiles = typename Tilings::Dkv;
  const AttentionShape& shape = task.shape;
  const std::int64_t head_bytes = shape.head_dim + shape.value_cols();  // mean of two matrices with 2 bytes per element
  start_blocks(stream, "AttentionBackward", attention_kernel<Dq<DqTiles>>, DqTiles::threads, DqTiles::shared_bytes,
               task, query_order(shape, DqTiles::rows, section_of(shape.key_len, head_bytes)));
  start_blocks(stream, "AttentionBackward", attention_kernel<Dkv<DkvTiles>>, DkvTiles::threads, DkvTiles::shared_bytes,
               task, key_order(shape, DkvTiles::rows, section_of(queries_of_key(shape), head_bytes)));
}

template <class Tiling>
void start_hopper(const CudaStream& stream, const BackwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  const auto sub_tiles = static_cast<std::size_t>(DqSums::sub_tiles(shape, Tiling::queries));
  const auto allocate = [&](std::size_t bytes) { return stream.memory().allocate(bytes, MemoryKind::buffers); };
  const std::size_t counters = sub_tiles + 1;
  const auto sums = allocate(sub_tiles * Tiling::sub_tile_bytes), counts = allocate(counters * sizeof(std::uint32_t));
  check(cudaMemsetAsync(counts.get(), 0, counters * sizeof(std::uint32_t), stream.handle()), "AttentionBackward");
  auto* const turns = reinterpret_cast<std::uint32_t*>(counts.get());
  const DqSums dq{reinterpret_cast<float*>(sums.get()), turns, turns + sub_tiles,
                  static_cast<int>(DqSums::tiles_of(shape, Tiling::queries))};
  // Two matrices with 4 bytes per element: q and d_out (bf16) together, and dq (f32).
  const std::int64_t head_bytes = 3 * shape.head_dim + shape.value_cols();
  start_blocks(stream, "AttentionBackward", hopper_backward_kernel<Tiling>, Tiling::threads, Tiling::shared_bytes,
               HopperBackwardTask{task, dq},
               later_keys_first(shape, Tiling::rows, section_of(queries_of_key(shape), head_bytes)));
}

}  // namespace

bool run_on_tensor_cores(const CudaStream& stream, const BackwardTask<bfloat16>& task) {
  if (task.shape.widest() > max_tiled_dim) return false;
  if (fits_hopper_backward(task.shape) && can_run_hopper_kernels(stream)) {
    with_hopper_backward_tiling(task.shape, [&]<class Tiling>() { start_hopper<Tiling>(stream, task); });
  } else {
    with_tilings(task.shape, [&]<class Tilings>() { start_dq_and_dkv<Tilings>(stream, task); });
  }
  return true;
}

}  // namespace lyceum::cuda
