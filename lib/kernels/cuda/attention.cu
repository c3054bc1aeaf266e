#include <algorithm>
#include <type_traits>

#include "kernels/attention_check.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tilings.cuh"
#include "kernels/cuda/machine_hopper.cuh"

namespace lyceum::cuda {

namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "for Hopper GPUs, compile for sm_90a: plain sm_90 has no warpgroup products"
#endif

/// What one thread of a launch does: Work::run(memory of the block, task, order of the blocks).
template <class Work>
__global__ void __launch_bounds__(Work::threads)
    attention_kernel(const __grid_constant__ typename Work::Task task, const __grid_constant__ BlockOrder order) {
  extern __shared__ __align__(1024) std::byte memory[];
  Work::run(memory, task, order);
}

template <class Tiling>
struct TiledForward {
  using Task = ForwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder& order) {
    attention_forward<Tiling>(Machine(memory), task, order.at(blockIdx.x));
  }
};

template <class Tiling>
struct TiledDq {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder& order) {
    attention_dq<Tiling>(Machine(memory), task, order.at(blockIdx.x));
  }
};

template <class Tiling>
struct TiledDkv {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder& order) {
    attention_dkv<Tiling>(Machine(memory), task, order.at(blockIdx.x));
  }
};

/// Calls work(machine) where the code is for Hopper; is launched nowhere else.
template <class F>
__device__ __forceinline__ void on_hopper([[maybe_unused]] std::byte* memory, [[maybe_unused]] F&& work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  work(HopperMachine(memory));
#else
  __trap();
#endif
}

template <class Tiling>
struct HopperForward {
  using Task = ForwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder& order) {
    on_hopper(memory, [&](const auto& m) { attention_forward_hopper<Tiling>(m, task, order.at(blockIdx.x)); });
  }
};

template <class Tiling>
struct HopperDq {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder& order) {
    on_hopper(memory, [&](const auto& m) { attention_dq_hopper<Tiling>(m, task, order.at(blockIdx.x)); });
  }
};

template <class Tiling>
struct HopperDkv {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder& order) {
    on_hopper(memory, [&](const auto& m) { attention_dkv_hopper<Tiling>(m, task, order.at(blockIdx.x)); });
  }
};

/// A warp for every row and head.
template <class T>
struct Delta {
  using Task = BackwardTask<T>;
  static constexpr int warps = 4, threads = 32 * warps;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder&) {
    const std::int64_t index = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
    if (index < task.shape.sequences * task.shape.query_len * task.shape.heads) {
      attention_delta(Machine(memory), task, index);
    }
  }
};

template <class T>
struct PlainForward {
  using Task = ForwardTask<T>;
  static constexpr int threads = plain_tile;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder&) {
    plain_forward(Machine(memory), task, blockIdx.x);
  }
};

template <class T>
struct PlainDq {
  using Task = BackwardTask<T>;
  static constexpr int threads = plain_tile;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder&) {
    plain_dq(Machine(memory), task, blockIdx.x);
  }
};

template <class T>
struct PlainDkv {
  using Task = BackwardTask<T>;
  static constexpr int threads = plain_tile;
  static __device__ __forceinline__ void run(std::byte* memory, const Task& task, const BlockOrder&) {
    plain_dkv(Machine(memory), task, blockIdx.x);
  }
};

/// `order` may be anything where Work does not use it.
template <class Work>
cudaError_t enqueue(cudaStream_t stream, std::int64_t blocks, std::int64_t shared_bytes,
                    const typename Work::Task& task, const BlockOrder& order = {}) {
  if (blocks == 0) return cudaSuccess;
  require(blocks <= 0x7fffffff, "attention: {} blocks of threads are more than a launch may have", blocks);
  const auto kernel = attention_kernel<Work>;
  if (shared_bytes > 48 << 10) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), Work::threads, static_cast<std::size_t>(shared_bytes), stream>>>(task, order);
  return cudaGetLastError();
}

/// Whether the current GPU has warpgroup products, and heads are of a length that they are used for.
cudaError_t uses_hopper(const AttentionShape& shape, bool& answer) {
  answer = false;
  if (!fits_hopper(shape.head_dim)) return cudaSuccess;
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  answer = error == cudaSuccess && major == 9;
  return error;
}

template <class Work, class Tiling>
cudaError_t enqueue_forward(cudaStream_t stream, const ForwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  const BlockOrder order = query_order(shape, Tiling::rows, section_of(shape.key_len, 2 * shape.head_dim));
  return enqueue<Work>(stream, order.blocks(), Tiling::shared_bytes, task, order);
}

template <class DqWork, class Dq, class DkvWork, class Dkv>
cudaError_t enqueue_backward(cudaStream_t stream, const BackwardTask<bfloat16>& task) {
  const AttentionShape& shape = task.shape;
  const std::int64_t head_bytes = 2 * shape.head_dim;
  const BlockOrder queries = query_order(shape, Dq::rows, section_of(shape.key_len, head_bytes));
  const cudaError_t error = enqueue<DqWork>(stream, queries.blocks(), Dq::shared_bytes, task, queries);
  if (error != cudaSuccess) return error;
  const std::int64_t seeing = shape.heads / shape.kv_heads * shape.query_len;
  const BlockOrder keys = key_order(shape, Dkv::rows, section_of(seeing, head_bytes));
  return enqueue<DkvWork>(stream, keys.blocks(), Dkv::shared_bytes, task, keys);
}

/// On the tensor cores.
cudaError_t enqueue_tiled(cudaStream_t stream, const ForwardTask<bfloat16>& task) {
  bool hopper = false;
  if (const cudaError_t error = uses_hopper(task.shape, hopper); error != cudaSuccess) return error;
  if (hopper) {
    return with_hopper_tilings(task.shape.head_dim, [&]<class Tilings>() {
      using Tiling = typename Tilings::Forward;
      return enqueue_forward<HopperForward<Tiling>, Tiling>(stream, task);
    });
  }
  return with_tilings(task.shape.head_dim, [&]<class Tilings>() {
    using Tiling = typename Tilings::Forward;
    return enqueue_forward<TiledForward<Tiling>, Tiling>(stream, task);
  });
}

cudaError_t enqueue_tiled(cudaStream_t stream, const BackwardTask<bfloat16>& task) {
  bool hopper = false;
  if (const cudaError_t error = uses_hopper(task.shape, hopper); error != cudaSuccess) return error;
  if (hopper) {
    return with_hopper_tilings(task.shape.head_dim, [&]<class Tilings>() {
      using Dq = typename Tilings::Dq;
      using Dkv = typename Tilings::Dkv;
      return enqueue_backward<HopperDq<Dq>, Dq, HopperDkv<Dkv>, Dkv>(stream, task);
    });
  }
  return with_tilings(task.shape.head_dim, [&]<class Tilings>() {
    using Dq = typename Tilings::Dq;
    using Dkv = typename Tilings::Dkv;
    return enqueue_backward<TiledDq<Dq>, Dq, TiledDkv<Dkv>, Dkv>(stream, task);
  });
}

/// Rows are counted in 32 bits within a sequence, tiles beyond its end included.
void require_countable(const AttentionShape& shape) {
  constexpr std::int64_t most = 1 << 30;
  require(shape.key_len <= most, "attention: sequences of {} tokens, {} is the most", shape.key_len, most);
  const std::int64_t heads = shape.sequences * shape.heads;
  require(heads <= most, "attention: {} heads in all sequences, {} is the most", heads, most);
}

}  // namespace

template <class T>
cudaError_t attention_forward(cudaStream_t stream, const AttentionForward<T>& attention) {
  require_fitting(attention);
  require_countable(attention.shape);
  const ForwardTask<T> task = task_of(attention);
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (task.shape.head_dim <= max_tiled_dim) return enqueue_tiled(stream, task);
  }
  return enqueue<PlainForward<T>>(stream, delta_size(task.shape), plain_shared_bytes<T>(task.shape), task);
}

template <class T>
cudaError_t attention_backward(cudaStream_t stream, const AttentionBackward<T>& attention, void* workspace) {
  require_fitting(attention);
  require_countable(attention.shape);
  const AttentionShape& shape = attention.shape;
  const BackwardTask<T> task = task_of(attention, static_cast<Accumulator<T>*>(workspace));
  const std::int64_t rows = delta_size(shape);
  cudaError_t error = enqueue<Delta<T>>(stream, (rows + Delta<T>::warps - 1) / Delta<T>::warps, 0, task);
  if (error != cudaSuccess) return error;
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (shape.head_dim <= max_tiled_dim) return enqueue_tiled(stream, task);
  }
  error = enqueue<PlainDq<T>>(stream, rows, plain_shared_bytes<T>(shape), task);
  if (error != cudaSuccess) return error;
  return enqueue<PlainDkv<T>>(stream, shape.sequences * shape.key_len * shape.kv_heads, plain_shared_bytes<T>(shape),
                              task);
}

template cudaError_t attention_forward(cudaStream_t, const AttentionForward<float>&);
template cudaError_t attention_forward(cudaStream_t, const AttentionForward<double>&);
template cudaError_t attention_forward(cudaStream_t, const AttentionForward<bfloat16>&);
template cudaError_t attention_backward(cudaStream_t, const AttentionBackward<float>&, void*);
template cudaError_t attention_backward(cudaStream_t, const AttentionBackward<double>&, void*);
template cudaError_t attention_backward(cudaStream_t, const AttentionBackward<bfloat16>&, void*);

}  // namespace lyceum::cuda
