#include "core/allocator.h"
#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/stick_breaking_tiles.cuh"

namespace lyceum::cuda {

namespace {

/// Number of keys per section of the backward pass. Its spans take 512 bytes of scratch memory per query and head.
constexpr int section_keys = 1024;

template <class Tiling>
struct StickForward {
  using Task = StickTilesTask;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = false;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    stick_forward<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct StickDq {
  using Task = StickSectionTask;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = false;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    stick_dq<Tiling>(m, task, block);
  }
};

template <class Tiling>
struct StickDkv {
  using Task = StickSectionTask;
  static constexpr int threads = Tiling::threads;
  static constexpr bool not_on_hopper = false;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder::Block& block) {
    stick_dkv<Tiling>(m, task, block);
  }
};

template <class Dq, class Dkv>
void start_sections(const CudaStream& stream, const StickBackwardTask<bfloat16>& backward) {
  const AttentionShape& shape = backward.shape;
  StickSectionTask task(backward, Dq::rows, section_keys);
  const auto allocate = [&](std::int64_t numbers, std::size_t size) {
    return stream.memory().allocate(static_cast<std::size_t>(numbers) * size, MemoryKind::buffers);
  };
  const auto at = allocate(task.spans(), sizeof(StickAt)), behind = allocate(task.rows(), sizeof(double)),
             older = allocate(task.rows(), sizeof(float)), dq_sums = allocate(task.sums(Dq::dim), sizeof(float));
  task.at = reinterpret_cast<StickAt*>(at.get());
  task.behind = reinterpret_cast<double*>(behind.get());
  task.older = reinterpret_cast<float*>(older.get());
  task.dq_sums = reinterpret_cast<float*>(dq_sums.get());
  const std::int64_t head_bytes = 2 * shape.head_dim, seeing = shape.heads / shape.kv_heads * shape.query_len;
  for (; task.first < shape.key_len; task.first += task.section) {
    start_blocks(stream, "StickBreakingBackward", attention_kernel<StickDq<Dq>>, Dq::threads, Dq::shared_bytes, task,
                 query_order(shape, Dq::rows, section_of(task.section, head_bytes)));
    start_blocks(stream, "StickBreakingBackward", attention_kernel<StickDkv<Dkv>>, Dkv::threads, Dkv::shared_bytes,
                 task, task.key_order(Dkv::rows, section_of(seeing, head_bytes)));
  }
}

}  // namespace

bool run_on_tensor_cores(const CudaStream& stream, const StickForwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  if (!StickTilesTask::fits(shape)) return false;
  with_square_tilings(shape.head_dim, [&]<class Tilings>() {
    using Tiling = typename Tilings::Forward;
    start_blocks(stream, "StickBreakingForward", attention_kernel<StickForward<Tiling>>, Tiling::threads,
                 Tiling::shared_bytes, StickTilesTask{task},
                 query_order(shape, Tiling::rows, section_of(shape.key_len, 2 * shape.head_dim)));
  });
  return true;
}

bool run_on_tensor_cores(const CudaStream& stream, const StickBackwardTask<bfloat16>& task) {
  if (!StickTilesTask::fits(task.shape)) return false;
  with_square_tilings(task.shape.head_dim, [&]<class Tilings>() {
    start_sections<typename Tilings::Dq, StickDkvTiling<typename Tilings::Dkv>>(stream, task);
  });
  return true;
}

}  // namespace lyceum::cuda
