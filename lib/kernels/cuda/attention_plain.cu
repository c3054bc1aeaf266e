#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

// Attention of any element type and any head dimension, a warp for each row of the result: for double, which gradient
// checks use, for float, for heads longer than the tensor cores' tiles, and as what these are compared with.

namespace lyceum::cuda {

namespace {

constexpr int plain_warps = 4, plain_threads = plain_warps * warp_size;

/// A warp's row of the result and its shared memory: a number or two of each lane, and sums of a head's columns.
template <class A>
struct WarpRow {
  std::int64_t index;
  int lane;
  A *first, *second;     // [warp_size]
  A *sums, *other_sums;  // [dim]; each lane has its own columns

  __device__ explicit WarpRow(std::int64_t dim)
      : index(std::int64_t{blockIdx.x} * plain_warps + threadIdx.x / warp_size), lane(threadIdx.x % warp_size) {
    first = reinterpret_cast<A*>(launched_shared()) + threadIdx.x / warp_size * size(dim);
    second = first + warp_size;
    sums = second + warp_size;
    other_sums = sums + dim;
    for (std::int64_t d = lane; d < dim; d += warp_size) sums[d] = other_sums[d] = 0;
  }
  __host__ __device__ static std::int64_t size(std::int64_t dim) { return 2 * warp_size + 2 * dim; }
};

template <class T>
__device__ Accumulator<T> dot(const T* a, const T* b, std::int64_t count) {
  Accumulator<T> sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += widen(a[d]) * widen(b[d]);
  return sum;
}

/// How many of [first, end) the lanes of a warp take at once.
__device__ inline int lanes_for(std::int64_t first, std::int64_t end) {
  return static_cast<int>(end - first < warp_size ? end - first : warp_size);
}

/// A query's row: its first key's row, its key head's first column, and how many keys it sees.
struct QueryPlace {
  std::int64_t row, head, first_key, col, seen;
  __device__ QueryPlace(const AttentionShape& shape, std::int64_t index)
      : row(index / shape.heads),
        head(index % shape.heads),
        first_key(row / shape.query_len * shape.key_len),
        col(head / (shape.heads / shape.kv_heads) * shape.head_dim),
        seen(causal_order(shape).seen(static_cast<int>(row % shape.query_len))) {}
};

/// A query's row of out. A NaN is passed over by the maximum and comes out of the exponentials.
template <class T>
__global__ void __launch_bounds__(plain_threads) forward_kernel(ForwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const std::int64_t dim = task.shape.head_dim;
  const WarpRow<A> warp(dim);
  if (warp.index >= rows) return;
  const QueryPlace at(task.shape, warp.index);
  const A nothing = -std::numeric_limits<A>::infinity();
  A largest = nothing, sum = 0;
  for (std::int64_t key = 0; key < at.seen; key += warp_size) {
    const int count = lanes_for(key, at.seen);
    A score = nothing;
    if (warp.lane < count) {
      score =
          dot(task.q.at(at.row, at.head * dim), task.k.at(at.first_key + key + warp.lane, at.col), dim) * task.scale;
    }
    const A most = join_warp(fmax(largest, score), [](A a, A b) { return fmax(a, b); });
    const A shrink = exp(largest - most), p = warp.lane < count ? exp(score - most) : A(0);
    largest = most;
    sum = sum * shrink + join_warp(p, Sum());
    warp.first[warp.lane] = p;
    __syncwarp();
    for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
      A total = warp.sums[d] * shrink;
      for (int j = 0; j < count; ++j) total += warp.first[j] * widen(*task.v.at(at.first_key + key + j, at.col + d));
      warp.sums[d] = total;
    }
    __syncwarp();
  }
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    *task.out.at(at.row, at.head * dim + d) = narrow<T>(warp.sums[d] / sum);
  }
  if (warp.lane == 0) *task.log_sum_exp.at(at.row, at.head) = largest + log(sum);
}

/// One row and head of delta.
template <class T>
__global__ void __launch_bounds__(plain_threads) delta_kernel(BackwardTask<T> task, std::int64_t rows) {
  const std::int64_t index = std::int64_t{blockIdx.x} * plain_warps + threadIdx.x / warp_size,
                     dim = task.shape.head_dim;
  if (index >= rows) return;
  const std::int64_t row = index / task.shape.heads, head = index % task.shape.heads;
  const T *out = task.out.at(row, head * dim), *d_out = task.d_out.at(row, head * dim);
  const int lane = threadIdx.x % warp_size;
  Accumulator<T> sum = 0;
  for (std::int64_t d = lane; d < dim; d += warp_size) sum += widen(out[d]) * widen(d_out[d]);
  sum = join_warp(sum, Sum());
  if (lane == 0) *task.delta.at(row, head) = sum;
}

/// p and ds of one query and one key.
template <class T>
struct Gradient {
  Accumulator<T> p, ds;
  __device__ Gradient(const BackwardTask<T>& task, std::int64_t row, std::int64_t head, std::int64_t key_row,
                      std::int64_t col) {
    const std::int64_t dim = task.shape.head_dim;
    const Accumulator<T> score = dot(task.q.at(row, head * dim), task.k.at(key_row, col), dim) * task.scale;
    const Accumulator<T> dp = dot(task.d_out.at(row, head * dim), task.v.at(key_row, col), dim);
    p = exp(score - *task.log_sum_exp.at(row, head));
    ds = p * (dp - *task.delta.at(row, head)) * task.scale;
  }
};

/// A query's row of dq.
template <class T>
__global__ void __launch_bounds__(plain_threads) dq_kernel(BackwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const std::int64_t dim = task.shape.head_dim;
  const WarpRow<A> warp(dim);
  if (warp.index >= rows) return;
  const QueryPlace at(task.shape, warp.index);
  for (std::int64_t key = 0; key < at.seen; key += warp_size) {
    const int count = lanes_for(key, at.seen);
    if (warp.lane < count) {
      warp.first[warp.lane] = Gradient<T>(task, at.row, at.head, at.first_key + key + warp.lane, at.col).ds;
    }
    __syncwarp();
    for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
      A total = warp.sums[d];
      for (int j = 0; j < count; ++j) total += warp.first[j] * widen(*task.k.at(at.first_key + key + j, at.col + d));
      warp.sums[d] = total;
    }
    __syncwarp();
  }
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    *task.dq.at(at.row, at.head * dim + d) = narrow<T>(warp.sums[d]);
  }
}

/// A key's rows of dk and dv.
template <class T>
__global__ void __launch_bounds__(plain_threads) dkv_kernel(BackwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const AttentionShape& shape = task.shape;
  const std::int64_t dim = shape.head_dim;
  const WarpRow<A> warp(dim);
  if (warp.index >= rows) return;
  const std::int64_t key_row = warp.index / shape.kv_heads, kv_head = warp.index % shape.kv_heads;
  const std::int64_t group = shape.heads / shape.kv_heads, first = key_row / shape.key_len * shape.query_len;
  const std::int64_t first_query = causal_order(shape).first_query(static_cast<int>(key_row % shape.key_len));
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t query = first_query; query < shape.query_len; query += warp_size) {
      const int count = lanes_for(query, shape.query_len);
      if (warp.lane < count) {
        const Gradient<T> gradient(task, first + query + warp.lane, head, key_row, kv_head * dim);
        warp.first[warp.lane] = gradient.p;
        warp.second[warp.lane] = gradient.ds;
      }
      __syncwarp();
      for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
        A v_total = warp.sums[d], k_total = warp.other_sums[d];
        for (int j = 0; j < count; ++j) {
          v_total += warp.first[j] * widen(*task.d_out.at(first + query + j, head * dim + d));
          k_total += warp.second[j] * widen(*task.q.at(first + query + j, head * dim + d));
        }
        warp.sums[d] = v_total;
        warp.other_sums[d] = k_total;
      }
      __syncwarp();
    }
  }
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    *task.dv.at(key_row, kv_head * dim + d) = narrow<T>(warp.sums[d]);
    *task.dk.at(key_row, kv_head * dim + d) = narrow<T>(warp.other_sums[d]);
  }
}

/// A warp for each of `rows`.
template <class Task>
void start_rows(const CudaStream& stream, const char* name, void (*kernel)(Task, std::int64_t), std::int64_t rows,
                std::size_t shared, const Task& task) {
  const std::int64_t blocks = (rows + plain_warps - 1) / plain_warps;
  require(blocks <= 0x7fffffff, "{}: {} blocks of threads are more than a launch may have", name, blocks);
  start_shared(stream, name, kernel, static_cast<unsigned>(blocks), plain_threads, shared, task, rows);
}

template <class T>
std::size_t shared_bytes(const AttentionShape& shape) {
  return plain_warps * static_cast<std::size_t>(WarpRow<Accumulator<T>>::size(shape.head_dim)) * sizeof(Accumulator<T>);
}

}  // namespace

template <class T>
void run_plain(const CudaStream& stream, const ForwardTask<T>& task) {
  start_rows(stream, "AttentionForward", forward_kernel<T>, delta_size(task.shape), shared_bytes<T>(task.shape), task);
}

template <class T>
void run_delta(const CudaStream& stream, const BackwardTask<T>& task) {
  start_rows(stream, "AttentionBackward", delta_kernel<T>, delta_size(task.shape), 0, task);
}

template <class T>
void run_plain(const CudaStream& stream, const BackwardTask<T>& task) {
  const AttentionShape& shape = task.shape;
  start_rows(stream, "AttentionBackward", dq_kernel<T>, delta_size(shape), shared_bytes<T>(shape), task);
  start_rows(stream, "AttentionBackward", dkv_kernel<T>, shape.sequences * shape.key_len * shape.kv_heads,
             shared_bytes<T>(shape), task);
}

template void run_plain(const CudaStream&, const ForwardTask<float>&);
template void run_plain(const CudaStream&, const ForwardTask<double>&);
template void run_plain(const CudaStream&, const ForwardTask<bfloat16>&);
template void run_plain(const CudaStream&, const BackwardTask<float>&);
template void run_plain(const CudaStream&, const BackwardTask<double>&);
template void run_plain(const CudaStream&, const BackwardTask<bfloat16>&);
template void run_delta(const CudaStream&, const BackwardTask<float>&);
template void run_delta(const CudaStream&, const BackwardTask<double>&);
template void run_delta(const CudaStream&, const BackwardTask<bfloat16>&);

}  // namespace lyceum::cuda
