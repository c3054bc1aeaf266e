#include "core/allocator.h"
#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/logistic.h"

// Stick-breaking attention without tensor cores, used for the same purposes as attention_plain.cu. As on the CPU, log
// p_i = z_i - Σ_{j >= i} softplus(z_j). A warp processes 32 keys of a query at a time; lane 0 has the oldest of them.

namespace lyceum::cuda {

namespace {

/// State of the backward pass at keys [first, first + 32) of each sequence. Arrays are indexed by query · heads + head,
/// where `query` counts the queries of all sequences.
template <class T>
struct PlainStickTask : StickBackwardTask<T> {
  using A = Accumulator<T>;
  double* log_left;  // [queries]: log Π (1 - β) of the keys from `first` on
  A* older;          // [queries]: Σ p dp of the keys before `first`
  A* dq_sums;        // [queries, head_dim]: dq from the keys before `first`
  A *parts, *ds;     // [queries, 32]: p and the gradients of the scores for the keys from `first` on
  std::int64_t first = 0;
};

/// `value` is log p of this lane's key without the share that keys newer than the warp's leave, whose log must be
/// added. `total` is the cost Σ softplus of all keys of the warp.
template <class A>
struct LogPart {
  A value, total;
  __device__ explicit LogPart(A score) {
    const A cost = sum_from_here(softplus(score));
    value = score - cost;
    total = __shfl_sync(whole_warp, cost, 0);
  }
};

/// Returns the score of this lane's key. Returns minus infinity, which has p = 0 and cost 0, for lanes from `count` on
/// and for keys that the query does not see.
template <class Task>
__device__ auto score_of(const Task& task, const QueryRow& at, std::int64_t key, int lane, int count) {
  using A = decltype(task.scale);
  const std::int64_t dim = task.shape.head_dim;
  if (lane >= count || key + lane < at.begin) return -std::numeric_limits<A>::infinity();
  return dot(task.q.at(at.row, at.q_col), task.k.at(at.first_key + key + lane, at.k_col), dim) * task.scale;
}

/// Computes one row of out and log_rest per warp, from the newest key to the oldest.
template <class T>
__global__ void __launch_bounds__(plain_threads) stick_forward_kernel(StickForwardTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const std::int64_t value_dim = task.shape.value_dim;
  const WarpRow<A> warp(task.shape);
  if (warp.index >= rows) return;
  const QueryRow at(task, warp.index);
  double log_left = 0;
  for (std::int64_t key = (at.end - 1) / warp_size * warp_size; key > at.begin - warp_size; key -= warp_size) {
    const int count = lanes_for(key, at.end);
    const LogPart<A> part(score_of(task, at, key, warp.lane, count));
    warp.first[warp.lane] = exp(part.value + static_cast<A>(log_left));
    log_left -= part.total;
    __syncwarp();
    add_rows(warp, task.v, at.first_key + key, at.v_col, count, value_dim);
    __syncwarp();
  }
  for (std::int64_t d = warp.lane; d < value_dim; d += warp_size) {
    *task.out.at(at.row, at.out_col + d) = narrow<T>(warp.sums[d]);
  }
  if (warp.lane == 0) *task.log_rest.at(at.row, at.head) = log_left;
}

/// Computes, per warp, p, ds and the contribution to dq of one query and the task's 32 keys.
template <class T>
__global__ void __launch_bounds__(plain_threads) stick_query_kernel(PlainStickTask<T> task, std::int64_t rows) {
  using A = Accumulator<T>;
  const std::int64_t dim = task.shape.head_dim, first = task.first;
  const WarpRow<A> warp(task.shape);
  if (warp.index >= rows) return;
  const QueryRow at(task, warp.index);
  if (at.end <= first || at.begin >= first + warp_size) return;
  const bool begins = at.begin >= first;
  const int count = lanes_for(first, at.end);
  const A score = score_of(task, at, first, warp.lane, count);
  const LogPart<A> part(score);
  const double log_left = (begins ? *task.log_rest.at(at.row, at.head) : task.log_left[warp.index]) + part.total;
  const A p = exp(part.value + static_cast<A>(log_left));
  A own = 0;
  if (warp.lane < count) {
    own = p * dot(task.d_out.at(at.row, at.out_col), task.v.at(at.first_key + first + warp.lane, at.v_col),
                  task.shape.value_dim);
  }
  const A older = (begins ? 0 : task.older[warp.index]) + sum_to_here(own);
  const A ds = (own - logistic(score) * older) * task.scale;
  task.parts[warp.index * warp_size + warp.lane] = p;
  task.ds[warp.index * warp_size + warp.lane] = ds;
  warp.first[warp.lane] = ds;
  __syncwarp();  // all lanes have read the state that the last lane overwrites
  if (warp.lane == warp_size - 1) {
    task.log_left[warp.index] = log_left;
    task.older[warp.index] = older;
  }
  A* sums = task.dq_sums + warp.index * dim;
  for (std::int64_t d = warp.lane; d < dim && !begins; d += warp_size) warp.sums[d] = sums[d];
  add_rows(warp, task.k, at.first_key + first, at.k_col, count, dim);
  for (std::int64_t d = warp.lane; d < dim; d += warp_size) {
    sums[d] = warp.sums[d];
    if (at.end <= first + warp_size) *task.dq.at(at.row, at.q_col + d) = narrow<T>(warp.sums[d]);
  }
}

/// Number of the task's keys in a sequence: 32, or fewer at its end.
template <class T>
__host__ __device__ std::int64_t keys_of_task(const PlainStickTask<T>& task) {
  const std::int64_t left = task.shape.key_len - task.first;
  return left < warp_size ? left : warp_size;
}

/// Computes one row of dk and dv per warp, for one of the task's keys, from the p and ds of its queries.
template <class T>
__global__ void __launch_bounds__(plain_threads) stick_key_kernel(PlainStickTask<T> task, std::int64_t rows) {
  const AttentionShape& shape = task.shape;
  const WarpRow<Accumulator<T>> warp(shape);
  if (warp.index >= rows) return;
  const std::int64_t kv_head = warp.index % shape.kv_heads, row = warp.index / shape.kv_heads;
  const std::int64_t keys = keys_of_task(task), key = row % keys, sequence = row / keys;
  const std::int64_t group = shape.heads / shape.kv_heads, first_row = sequence * shape.query_len;
  const SeeingQueries seeing(task, sequence, task.first + key);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t query = seeing.begin; query < seeing.end; query += warp_size) {
      const int count = lanes_for(query, seeing.end);
      if (warp.lane < count) {
        const std::int64_t cell = ((first_row + query + warp.lane) * shape.heads + head) * warp_size + key;
        warp.first[warp.lane] = task.parts[cell];
        warp.second[warp.lane] = task.ds[cell];
      }
      __syncwarp();
      add_queries(warp, task, first_row + query, head, count);
      __syncwarp();
    }
  }
  write_key(warp, task, sequence * shape.key_len + task.first + key, kv_head);
}

}  // namespace

template <class T>
void run_plain(const CudaStream& stream, const StickForwardTask<T>& task) {
  start_rows(stream, "StickBreakingForward", stick_forward_kernel<T>, delta_size(task.shape),
             warp_row_bytes<T>(task.shape), task);
}

/// Launches two kernels for every 32 keys, the oldest ones first. Scratch memory grows with the number of queries, not
/// with that of pairs of queries and keys.
template <class T>
void run_plain(const CudaStream& stream, const StickBackwardTask<T>& backward) {
  using A = Accumulator<T>;
  const AttentionShape& shape = backward.shape;
  const std::int64_t queries = delta_size(shape);
  const auto allocate = [&](std::int64_t numbers, std::size_t size) {
    return stream.memory().allocate(static_cast<std::size_t>(numbers) * size, MemoryKind::buffers);
  };
  const auto log_left = allocate(queries, sizeof(double)), older = allocate(queries, sizeof(A)),
             dq_sums = allocate(queries * shape.head_dim, sizeof(A)), parts = allocate(queries * warp_size, sizeof(A)),
             ds = allocate(queries * warp_size, sizeof(A));
  const auto numbers = [](const std::shared_ptr<std::byte>& memory) { return reinterpret_cast<A*>(memory.get()); };
  PlainStickTask<T> task{backward,       reinterpret_cast<double*>(log_left.get()),
                         numbers(older), numbers(dq_sums),
                         numbers(parts), numbers(ds)};
  const std::size_t shared = warp_row_bytes<T>(shape);
  for (; task.first < shape.key_len; task.first += warp_size) {
    start_rows(stream, "StickBreakingBackward", stick_query_kernel<T>, queries, shared, task);
    start_rows(stream, "StickBreakingBackward", stick_key_kernel<T>,
               shape.sequences * keys_of_task(task) * shape.kv_heads, shared, task);
  }
}

LYCEUM_FLOATS(LYCEUM_PLAIN_INSTANCE, StickForwardTask)
LYCEUM_FLOATS(LYCEUM_PLAIN_INSTANCE, StickBackwardTask)

}  // namespace lyceum::cuda
