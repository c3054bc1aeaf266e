#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_task.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

// Shared parts of the plain attention kernels (no tensor cores). They support every element type and head dimension.
// One warp computes one row of the result.

namespace lyceum::cuda {

inline constexpr int plain_warps = 4, plain_threads = plain_warps * warp_size;

/// The row of the result that a warp computes, and the warp's part of dynamic shared memory: one or two numbers per
/// lane, and two rows of sums over a head's columns, which begin as zeros.
template <class A>
struct WarpRow {
  std::int64_t index;
  int lane;
  A *first, *second;     // [warp_size]
  A *sums, *other_sums;  // [dim]; lane l owns columns l, l + 32, …

  /// `shape`: that of the attention; `dim` is the larger width of its heads.
  __device__ explicit WarpRow(const AttentionShape& shape) : WarpRow(shape.widest()) {}
  /// Number of elements of shared memory per warp.
  __host__ __device__ static std::int64_t size(std::int64_t dim) { return 2 * warp_size + 2 * dim; }

 private:
  __device__ explicit WarpRow(std::int64_t dim)
      : index(std::int64_t{blockIdx.x} * plain_warps + threadIdx.x / warp_size), lane(threadIdx.x % warp_size) {
    first = reinterpret_cast<A*>(launched_shared()) + threadIdx.x / warp_size * size(dim);
    second = first + warp_size;
    sums = second + warp_size;
    other_sums = sums + dim;
    for (std::int64_t d = lane; d < dim; d += warp_size) sums[d] = other_sums[d] = 0;
  }
};

/// Returns Σ a[d] · b[d] over `count` elements, computed by one thread.
template <class T>
__device__ Accumulator<T> dot(const T* a, const T* b, std::int64_t count) {
  Accumulator<T> sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += widen(a[d]) * widen(b[d]);
  return sum;
}

/// Number of elements of [first, end) that the lanes of a warp process at once, at most 32.
__device__ inline int lanes_for(std::int64_t first, std::int64_t end) {
  return static_cast<int>(end - first < warp_size ? end - first : warp_size);
}

/// The position of row `index` of a result over queries and heads: its row and head; the first columns of the head in q
/// and in out; the row of its sequence's first key; the first columns of its key head in k and in v; and the keys
/// [begin, end) that the query sees.
struct QueryRow {
  std::int64_t row, head, q_col, out_col, first_key, k_col, v_col, begin, end;
  template <class Task>
  __device__ QueryRow(const Task& task, std::int64_t index) {
    const AttentionShape& shape = task.shape;
    row = index / shape.heads;
    head = index % shape.heads;
    const std::int64_t sequence = row / shape.query_len;
    first_key = sequence * shape.key_len;
    const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
    q_col = head * shape.head_dim;
    k_col = kv_head * shape.head_dim;
    out_col = head * shape.value_dim;
    v_col = kv_head * shape.value_dim;
    const CausalOrder order = causal_order(task, sequence);
    const int query = static_cast<int>(row % shape.query_len);
    begin = order.first_key(query);
    end = order.seen(query);
  }
};

/// The queries [begin, end) of a sequence that see key `key`.
struct SeeingQueries {
  std::int64_t begin, end;
  template <class Task>
  __device__ SeeingQueries(const Task& task, std::int64_t sequence, std::int64_t key) {
    const CausalOrder order = causal_order(task, sequence);
    begin = order.first_query(static_cast<int>(key));
    end = order.end_query(static_cast<int>(key));
  }
};

/// warp.sums = shrink · sums + Σ_j first[j] · row (row + j) of `rows`, over `count` rows and the head's columns from
/// `col` on.
template <class T>
__device__ void add_rows(const WarpRow<Accumulator<T>>& warp, const StridedMatrix<const T>& rows, std::int64_t row,
                         std::int64_t col, int count, std::int64_t dim, Accumulator<T> shrink = 1) {
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    Accumulator<T> total = warp.sums[d] * shrink;
    for (int j = 0; j < count; ++j) total += warp.first[j] * widen(*rows.at(row + j, col + d));
    warp.sums[d] = total;
  }
}

/// Adds queries to dv and dk of a warp's key: sums += Σ_j first[j] · row j of d_out, other_sums += Σ_j second[j] · row
/// j of q.
template <class Task>
__device__ void add_queries(const WarpRow<decltype(Task::scale)>& warp, const Task& task, std::int64_t row,
                            std::int64_t head, int count) {
  const std::int64_t dim = task.shape.head_dim, value_dim = task.shape.value_dim;
  for (std::int64_t d = warp.lane; d < value_dim; d += warp_size) {
    auto total = warp.sums[d];
    for (int j = 0; j < count; ++j) total += warp.first[j] * widen(*task.d_out.at(row + j, head * value_dim + d));
    warp.sums[d] = total;
  }
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    auto total = warp.other_sums[d];
    for (int j = 0; j < count; ++j) total += warp.second[j] * widen(*task.q.at(row + j, head * dim + d));
    warp.other_sums[d] = total;
  }
}

/// Writes the sums of add_queries() to the key's rows of dv and dk.
template <class Task>
__device__ void write_key(const WarpRow<decltype(Task::scale)>& warp, const Task& task, std::int64_t row,
                          std::int64_t kv_head) {
  using T = std::remove_reference_t<decltype(*task.dv.data)>;
  const std::int64_t dim = task.shape.head_dim, value_dim = task.shape.value_dim;
  for (std::int64_t d = warp.lane; d < value_dim; d += warp_size) {
    *task.dv.at(row, kv_head * value_dim + d) = narrow<T>(warp.sums[d]);
  }
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    *task.dk.at(row, kv_head * dim + d) = narrow<T>(warp.other_sums[d]);
  }
}

/// Launches `kernel` with one warp per row, in blocks of plain_warps warps with `shared` bytes of dynamic shared
/// memory.
template <class Task>
void start_rows(const CudaStream& stream, const char* name, void (*kernel)(Task, std::int64_t), std::int64_t rows,
                std::size_t shared, const Task& task) {
  const std::int64_t blocks = (rows + plain_warps - 1) / plain_warps;
  require(blocks <= 0x7fffffff, "{}: a launch cannot have {} thread blocks", name, blocks);
  start_shared(stream, name, kernel, static_cast<unsigned>(blocks), plain_threads, shared, task, rows);
}

/// Returns the bytes of dynamic shared memory per thread block for the WarpRow of each warp.
template <class T>
std::size_t warp_row_bytes(const AttentionShape& shape) {
  return plain_warps * static_cast<std::size_t>(WarpRow<Accumulator<T>>::size(shape.widest())) * sizeof(Accumulator<T>);
}

}  // namespace lyceum::cuda
