#include "kernels/cuda/attention.cuh"

#include <algorithm>
#include <type_traits>

#include "kernels/attention_check.h"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tilings.cuh"
#include "kernels/cuda/machine.cuh"

namespace lyceum::cuda {

namespace {

/// What one thread of a launch does: Work::run(machine, task, index of the block).
template <class Work>
__global__ void __launch_bounds__(Work::threads)
    attention_kernel(const __grid_constant__ typename Work::Task task, const __grid_constant__ BlockOrder order) {
  extern __shared__ __align__(128) std::byte memory[];
  Work::run(Machine(memory), task, order);
}

template <class Tiling>
struct TiledForward {
  using Task = ForwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder& order) {
    attention_forward<Tiling>(m, task, order.at(blockIdx.x));
  }
};

template <class Tiling>
struct TiledDq {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder& order) {
    attention_dq<Tiling>(m, task, order.at(blockIdx.x));
  }
};

template <class Tiling>
struct TiledDkv {
  using Task = BackwardTask<bfloat16>;
  static constexpr int threads = Tiling::threads;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder& order) {
    attention_dkv<Tiling>(m, task, order.at(blockIdx.x));
  }
};

/// A warp for every row and head.
template <class T>
struct Delta {
  using Task = BackwardTask<T>;
  static constexpr int warps = 4, threads = 32 * warps;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder&) {
    const std::int64_t index = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
    if (index < task.shape.sequences * task.shape.query_len * task.shape.heads) attention_delta(m, task, index);
  }
};

template <class T>
struct PlainForward {
  using Task = ForwardTask<T>;
  static constexpr int threads = plain_tile;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder&) {
    plain_forward(m, task, blockIdx.x);
  }
};

template <class T>
struct PlainDq {
  using Task = BackwardTask<T>;
  static constexpr int threads = plain_tile;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder&) {
    plain_dq(m, task, blockIdx.x);
  }
};

template <class T>
struct PlainDkv {
  using Task = BackwardTask<T>;
  static constexpr int threads = plain_tile;
  static __device__ __forceinline__ void run(const Machine& m, const Task& task, const BlockOrder&) {
    plain_dkv(m, task, blockIdx.x);
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
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), Work::threads, static_cast<std::size_t>(shared_bytes), stream>>>(task, order);
  return cudaGetLastError();
}

/// bfloat16 on the tensor cores.
template <class T>
bool tiled(const AttentionShape& shape) {
  return std::is_same_v<T, bfloat16> && shape.head_dim <= max_tiled_dim;
}

template <class Tiling, template <class> class Work, class Task>
cudaError_t enqueue_tiled(cudaStream_t stream, const BlockOrder& order, const Task& task) {
  return enqueue<Work<Tiling>>(stream, order.blocks(), Tiling::shared_bytes, task, order);
}

}  // namespace

template <class T>
cudaError_t attention_forward(cudaStream_t stream, const AttentionForward<T>& attention) {
  require_fitting(attention);
  const AttentionShape& shape = attention.shape;
  const ForwardTask<T> task = task_of(attention);
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (tiled<T>(shape)) {
      return with_tilings(shape.head_dim, [&]<class Tilings>() {
        using Tiling = typename Tilings::Forward;
        return enqueue_tiled<Tiling, TiledForward>(
            stream, query_order(shape, Tiling::rows, section_of(shape.key_len, 2 * shape.head_dim)), task);
      });
    }
  }
  return enqueue<PlainForward<T>>(stream, delta_size(shape), plain_shared_bytes<T>(shape), task);
}

template <class T>
cudaError_t attention_backward(cudaStream_t stream, const AttentionBackward<T>& attention, void* workspace) {
  require_fitting(attention);
  const AttentionShape& shape = attention.shape;
  const BackwardTask<T> task = task_of(attention, static_cast<Accumulator<T>*>(workspace));
  const std::int64_t rows = delta_size(shape);
  cudaError_t error = enqueue<Delta<T>>(stream, (rows + Delta<T>::warps - 1) / Delta<T>::warps, 0, task);
  if (error != cudaSuccess) return error;
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (tiled<T>(shape)) {
      return with_tilings(shape.head_dim, [&]<class Tilings>() {
        using Dq = typename Tilings::Dq;
        using Dkv = typename Tilings::Dkv;
        const std::int64_t head_bytes = 2 * shape.head_dim, group = shape.heads / shape.kv_heads;
        error = enqueue_tiled<Dq, TiledDq>(
            stream, query_order(shape, Dq::rows, section_of(shape.key_len, head_bytes)), task);
        if (error != cudaSuccess) return error;
        return enqueue_tiled<Dkv, TiledDkv>(
            stream, key_order(shape, Dkv::rows, section_of(group * shape.query_len, head_bytes)), task);
      });
    }
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
