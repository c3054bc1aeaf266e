#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/attention_rows.cuh"

// Attention without tensor cores. It is used for double (gradient checks), for float, for heads longer than the tensor
// cores' tiles, and as the reference in tests of the tensor core kernels.

namespace lyceum::cuda {

namespace {

/// Computes one row of out per warp, with an online softmax over 32 keys at a time. The maximum ignores a NaN, which
/// then propagates through the exponentials.
template <class T>
__global__ void __launch_bounds__(plain_threads) forward_kernel(ForwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const std::int64_t dim = task.shape.head_dim, value_dim = task.shape.value_dim;
  const WarpRow<A> warp(task.shape);
  if (warp.index >= rows) return;
  const QueryRow at(task, warp.index);
  const A nothing = -std::numeric_limits<A>::infinity();
  A largest = nothing, sum = 0;
  for (std::int64_t key = at.begin; key < at.end; key += warp_size) {
    const int count = lanes_for(key, at.end);
    A score = nothing;
    if (warp.lane < count) {
      score = dot(task.q.at(at.row, at.q_col), task.k.at(at.first_key + key + warp.lane, at.k_col), dim) * task.scale;
    }
    const A most = join_warp(fmax(largest, score), [](A a, A b) { return fmax(a, b); });
    const A shrink = exp(largest - most), p = warp.lane < count ? exp(score - most) : A(0);
    largest = most;
    sum = sum * shrink + join_warp(p, Sum());
    warp.first[warp.lane] = p;
    __syncwarp();
    add_rows(warp, task.v, at.first_key + key, at.v_col, count, value_dim, shrink);
    __syncwarp();
  }
  for (std::int64_t d = warp.lane; d < value_dim; d += warp_size) {
    *task.out.at(at.row, at.out_col + d) = narrow<T>(warp.sums[d] / sum);
  }
  if (warp.lane == 0) *task.log_sum_exp.at(at.row, at.head) = largest + log(sum);
  if (warp.lane == 0 && task.largest.data) *task.largest.at(at.row, at.head) = largest;
}

/// Computes delta of one row and head per warp.
template <class T>
__global__ void __launch_bounds__(plain_threads) delta_kernel(BackwardTask<T> task, std::int64_t rows) {
  const std::int64_t index = std::int64_t{blockIdx.x} * plain_warps + threadIdx.x / warp_size,
                     value_dim = task.shape.value_dim;
  if (index >= rows) return;
  const std::int64_t row = index / task.shape.heads, head = index % task.shape.heads;
  const T *out = task.out.at(row, head * value_dim), *d_out = task.d_out.at(row, head * value_dim);
  const int lane = threadIdx.x % warp_size;
  Accumulator<T> sum = 0;
  for (std::int64_t d = lane; d < value_dim; d += warp_size) sum += widen(out[d]) * widen(d_out[d]);
  sum = join_warp(sum, Sum());
  if (lane == 0) *task.delta.at(row, head) = sum;
}

/// p and ds of one query and one key.
template <class T>
struct Gradient {
  Accumulator<T> p, ds;
  __device__ Gradient(const BackwardTask<T>& task, std::int64_t row, std::int64_t head, std::int64_t key_row,
                      std::int64_t kv_head) {
    const std::int64_t dim = task.shape.head_dim, value_dim = task.shape.value_dim;
    const Accumulator<T> score = dot(task.q.at(row, head * dim), task.k.at(key_row, kv_head * dim), dim) * task.scale;
    const Accumulator<T> dp =
        dot(task.d_out.at(row, head * value_dim), task.v.at(key_row, kv_head * value_dim), value_dim);
    p = exp(score - *task.log_sum_exp.at(row, head));
    ds = p * (dp - *task.delta.at(row, head)) * task.scale;
  }
};

/// Computes one row of dq per warp.
template <class T>
__global__ void __launch_bounds__(plain_threads) dq_kernel(BackwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const std::int64_t dim = task.shape.head_dim, group = task.shape.heads / task.shape.kv_heads;
  const WarpRow<A> warp(task.shape);
  if (warp.index >= rows) return;
  const QueryRow at(task, warp.index);
  for (std::int64_t key = at.begin; key < at.end; key += warp_size) {
    const int count = lanes_for(key, at.end);
    if (warp.lane < count) {
      warp.first[warp.lane] = Gradient<T>(task, at.row, at.head, at.first_key + key + warp.lane, at.head / group).ds;
    }
    __syncwarp();
    add_rows(warp, task.k, at.first_key + key, at.k_col, count, dim);
    __syncwarp();
  }
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    *task.dq.at(at.row, at.q_col + d) = narrow<T>(warp.sums[d]);
  }
}

/// Computes one row of dk and dv per warp.
template <class T>
__global__ void __launch_bounds__(plain_threads) dkv_kernel(BackwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const AttentionShape& shape = task.shape;
  const WarpRow<A> warp(shape);
  if (warp.index >= rows) return;
  const std::int64_t key_row = warp.index / shape.kv_heads, kv_head = warp.index % shape.kv_heads;
  const std::int64_t sequence = key_row / shape.key_len, first = sequence * shape.query_len;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const SeeingQueries seeing(task, sequence, key_row % shape.key_len);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t query = seeing.begin; query < seeing.end; query += warp_size) {
      const int count = lanes_for(query, seeing.end);
      if (warp.lane < count) {
        const Gradient<T> gradient(task, first + query + warp.lane, head, key_row, kv_head);
        warp.first[warp.lane] = gradient.p;
        warp.second[warp.lane] = gradient.ds;
      }
      __syncwarp();
      add_queries(warp, task, first + query, head, count);
      __syncwarp();
    }
  }
  write_key(warp, task, key_row, kv_head);
}

}  // namespace

template <class T>
void run_plain(const CudaStream& stream, const ForwardTask<T>& task) {
  start_rows(stream, "AttentionForward", forward_kernel<T>, delta_size(task.shape), warp_row_bytes<T>(task.shape),
             task);
}

template <class T>
void run_delta(const CudaStream& stream, const BackwardTask<T>& task) {
  start_rows(stream, "AttentionBackward", delta_kernel<T>, delta_size(task.shape), 0, task);
}

template <class T>
void run_plain(const CudaStream& stream, const BackwardTask<T>& task) {
  const AttentionShape& shape = task.shape;
  start_rows(stream, "AttentionBackward", dq_kernel<T>, delta_size(shape), warp_row_bytes<T>(shape), task);
  start_rows(stream, "AttentionBackward", dkv_kernel<T>, shape.sequences * shape.key_len * shape.kv_heads,
             warp_row_bytes<T>(shape), task);
}

LYCEUM_FLOATS(LYCEUM_PLAIN_INSTANCE, ForwardTask)
LYCEUM_FLOATS(LYCEUM_PLAIN_INSTANCE, BackwardTask)
#define LYCEUM_DELTA_INSTANCE(...) template void run_delta(const CudaStream&, const __VA_ARGS__&);
LYCEUM_FLOATS(LYCEUM_DELTA_INSTANCE, BackwardTask)

}  // namespace lyceum::cuda
