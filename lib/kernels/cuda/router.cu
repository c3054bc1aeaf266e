#include <cmath>
#include <cstring>
#include <limits>

#include "core/allocator.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/router_rows.cuh"
#include "kernels/cuda/sum_columns.cuh"
#include "kernels/router.h"
#include "kernels/router_checks.h"
#include "kernels/router_chunks.h"
#include "kernels/sum_columns.h"

namespace lyceum {

namespace {

constexpr std::int64_t max_local_counts = 4096;

/// Maps numbers to unsigned integers of the same order. NaN comes before −∞; −0 and 0 are equal.
__device__ unsigned rank_of(float x) {
  if (std::isnan(x)) return 0;
  const unsigned sign = 0x80000000u, bits = x == 0 ? 0 : __float_as_uint(x);
  return bits & sign ? ~bits : bits | sign;
}
__device__ std::uint64_t rank_of(double x) {
  if (std::isnan(x)) return 0;
  const std::uint64_t sign = std::uint64_t{1} << 63;
  std::uint64_t bits = 0;
  if (x != 0) std::memcpy(&bits, &x, sizeof x);
  return bits & sign ? ~bits : bits | sign;
}

__device__ unsigned largest_of_warp(unsigned rank) { return __reduce_max_sync(whole_warp, rank); }
__device__ std::uint64_t largest_of_warp(std::uint64_t rank) { return join_warp(rank, Largest{}); }

/// Finds the next choice after (rank, expert) in descending order of the key, and writes its rank and expert to these.
/// Equal keys are in ascending order of expert. Comparing with the last choice means that no expert needs to be marked
/// as taken. The keys are key(column, logit, index among the lane's columns), of the columns from `first` on. All lanes
/// of the warp must call it; they get the same result.
template <class A, int held, class Key, class Rank>
__device__ void to_next_choice(const Row<A, held>& logits, const Key& key, std::int64_t first, Rank& rank,
                               int& expert) {
  constexpr unsigned no_expert = ~0u;
  Rank best = 0;
  unsigned own = no_expert;
  logits.each([&](std::int64_t c, A x, int i) {
    if (c < first) return;
    const Rank here = rank_of(key(c, x, i));
    const bool behind = here < rank || (here == rank && c > expert);
    if (behind && (own == no_expert || here > best)) {
      best = here;
      own = static_cast<unsigned>(c);
    }
  });
  rank = largest_of_warp(best);
  expert = static_cast<int>(__reduce_min_sync(whole_warp, best == rank ? own : no_expert));
}

/// Returns the set of groups that a token may choose from, one bit per group, the same in all lanes: the group_limit
/// groups with the largest GroupScore of score(column, logit, index among the lane's columns). NaN scores are ignored.
/// All lanes of the warp must call it.
template <class A, int held, class Score>
__device__ std::uint64_t open_groups(const RouteTokens<A>& route, const Row<A, held>& logits, const Score& score) {
  constexpr A none = -std::numeric_limits<A>::infinity();
  A low = none, high = none;  // scores of groups lane() and lane() + 32
  const bool by_best = route.group_score == GroupScore::maximum;
  for (int g = 0; g < route.groups; ++g) {
    A best = none, second = none;
    logits.each([&](std::int64_t c, A x, int i) {
      if (route.group[c] != g) return;
      const A own = score(c, x, i);
      if (own > best) {
        second = best;
        best = own;
      } else if (own > second) {
        second = own;
      }
    });
    const A of_group = join_warp(best, Largest{});
    const unsigned holder = __reduce_min_sync(whole_warp, best == of_group ? static_cast<unsigned>(lane()) : ~0u);
    const A next = join_warp(holder == static_cast<unsigned>(lane()) ? second : best, Largest{});
    const A of_two = by_best || std::isinf(next) ? of_group : of_group + next;
    if (lane() == g % warp_size) (g < warp_size ? low : high) = of_two;
  }
  std::uint64_t open = 0;
  for (std::int64_t chosen = 0; chosen < route.group_limit; ++chosen) {
    unsigned own = ~0u;
    A best = none;
    for (int g = lane(); g < route.groups; g += warp_size) {
      const A sum = g < warp_size ? low : high;
      if (open >> g & 1 || (own != ~0u && !(sum > best))) continue;
      best = sum;
      own = static_cast<unsigned>(g);
    }
    const A of_all = join_warp(best, Largest{});
    const unsigned taken = __reduce_min_sync(whole_warp, own != ~0u && best == of_all ? own : ~0u);
    open |= std::uint64_t{1} << taken;
  }
  return open;
}

/// Counts of a block's choices, in shared memory: by rank of choice if that memory suffices. Otherwise they are
/// kept for all ranks together, and counts by rank are added to `all` at once. Only integers are added atomically, so
/// the order does not matter.
struct Counts {
  int* local;  // [ranks, experts]; null: nothing is counted
  bool by_rank;
  std::int64_t ranks, experts;
  Matrix<std::int64_t> all;  // [k, experts] or none

  __device__ void clear() const {
    for (std::int64_t i = threadIdx.x; i < ranks * experts; i += router_threads) local[i] = 0;
  }
  __device__ void add(std::int64_t j, std::int64_t expert) const {
    if (!local) return;
    atomicAdd(local + (by_rank ? j * experts : 0) + expert, 1);
    if (!by_rank) add_to_all(j, expert, 1);
  }
  __device__ void add_to_all(std::int64_t j, std::int64_t expert, int times) const {
    if (all.rows == 0) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(all.row(j) + expert), static_cast<unsigned long long>(times));
  }
  /// Called by all threads after a barrier, once everything is counted: writes the sum over ranks of each expert to
  /// `total` and adds counts by rank to `all`.
  __device__ void finish(double* total) const {
    for (std::int64_t e = threadIdx.x; e < experts; e += router_threads) {
      int sum = 0;
      for (std::int64_t j = 0; j < ranks; ++j) {
        const int times = local[j * experts + e];
        if (by_rank && times) add_to_all(j, e, times);
        sum += times;
      }
      total[e] = sum;
    }
  }
};

/// Writes the experts and gates of token t. The experts are the best by `key`, the gates are computed from
/// score(logit). All lanes of the warp must call it.
template <class A, int held, class Key, class Score>
__device__ void choose(const RouteTokens<A>& route, const Row<A, held>& logits, std::int64_t t, const Key& key,
                       const Score& score, const Counts& counts) {
  const std::int64_t k = choices_per_token(route);
  auto rank = static_cast<decltype(rank_of(A{}))>(-1);
  int expert = -1;
  for (std::int64_t j = 0; j < route.skip; ++j) to_next_choice(logits, key, route.always_on, rank, expert);
  const bool divided = route.rule == Gates::renormalized || route.rule == Gates::detached;
  const A scale = static_cast<A>(route.gate_scale), undivided_scale = divided ? A{1} : scale;
  A sum = 0;
  for (std::int64_t from = 0; from < k; from += warp_size) {
    std::int64_t own = 0;
    for (std::int64_t j = from; j < k && j < from + warp_size; ++j) {
      to_next_choice(logits, key, route.always_on, rank, expert);
      if (j == from + lane()) own = expert;
    }
    const std::int64_t j = from + lane();
    if (j >= k) continue;
    if (route.even) {
      own = route.always_on + ((route.first_token + t) * k + j) % (route.logits.cols - route.always_on);
    }
    const A gate = score(route.logits.row(t)[own]);
    route.index.row(t)[j] = static_cast<std::int32_t>(own);
    route.gates.row(t)[j] = (route.rule == Gates::ones ? A{1} : gate) * undivided_scale;
    sum += gate;
    counts.add(j, own);
  }
  for (std::int64_t j = k + lane(); j < route.index.cols; j += warp_size) {
    route.index.row(t)[j] = -1;
    route.gates.row(t)[j] = 0;
  }
  if (!divided) return;
  sum = join_warp(sum, Sum{});
  for (std::int64_t j = lane(); j < k; j += warp_size) {  // the same lane wrote these gates
    route.gates.row(t)[j] = route.gates.row(t)[j] / sum * scale;
  }
}

/// Sums the probabilities of a block's tokens over its warps, for kernels that hold rows in registers: each warp brings
/// its own sums, which are added in order. Writes total[0 … experts). All threads of the block must call it.
template <int held>
__device__ void add_scores(const double (&own)[held], double* of_warps, std::int64_t experts, double* total) {
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const std::int64_t c = lane() + i * warp_size;
    if (c < experts) of_warps[warp() * experts + c] = own[i];
  }
  __syncthreads();
  for (std::int64_t c = threadIdx.x; c < experts; c += router_threads) {
    double sum = 0;
    for (int w = 0; w < router_warps; ++w) sum += of_warps[w * experts + c];
    total[c] = sum;
  }
}

/// Sums the probabilities of tokens [begin, end), for kernels that do not hold rows in registers: recomputes them
/// column by column.
template <Scores scores, class A>
__device__ void add_scores(const RouteTokens<A>& route, std::int64_t begin, std::int64_t end, double* total) {
  for (std::int64_t c = threadIdx.x; c < route.logits.cols; c += router_threads) {
    double sum = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      const A* norm = route.norms.row(t);
      const A inverse = A{1} / norm[1], score = score_of<scores>(route.logits.row(t)[c], norm[0], inverse);
      sum += static_cast<double>(scores == Scores::softmax ? score : score * inverse);
    }
    total[c] = sum;
  }
}

/// Routes the tokens of one chunk of a sequence per thread block, one token per warp at a time. partial is [chunks,
/// load_width(experts)], or empty if no load is needed. `groups`: the kernel supports limits of groups.
template <class A, int held, Scores kind, bool groups>
__global__ void __launch_bounds__(router_threads)
    route_tokens(RouteTokens<A> route, RouterChunks chunks, Matrix<double> partial, bool by_rank) {
  constexpr int held_columns = held ? held : 1;
  __shared__ double squares[router_warps], entropies[router_warps];
  const std::int64_t experts = route.logits.cols, begin = chunks.begin(blockIdx.x), end = chunks.end(blockIdx.x);
  const bool loads = partial.rows > 0;
  auto* of_warps = reinterpret_cast<double*>(launched_shared());
  int* local = reinterpret_cast<int*>(of_warps + (held ? router_warps * experts : 0));
  const Counts counts{loads ? local : nullptr, by_rank, by_rank ? route.index.cols : 1, experts, route.counts};
  if (loads) counts.clear();
  __syncthreads();

  double sums[held_columns] = {}, square = 0, entropy = 0;
  for (std::int64_t t = begin + warp(); t < end; t += router_warps) {
    const Row<A, held> logits(route.logits.row(t), experts);
    A largest = 0, sum = 0, scores[held_columns] = {};
    if constexpr (kind == Scores::softmax) {
      largest = -std::numeric_limits<A>::infinity();
      logits.each([&](std::int64_t, A x, int) { largest = Largest{}(largest, x); });
      largest = join_warp(largest, Largest{});
    }
    const auto unscaled = [&](A x) { return score_of<kind>(x, largest, A{1}); };
    logits.each([&](std::int64_t, A x, int i) { sum += scores[i] = unscaled(x); });
    sum = join_warp(sum, Sum{});
    const A inverse = A{1} / sum;
    if (lane() < 2) route.norms.row(t)[lane()] = lane() == 0 ? largest : sum;
    const auto score = [&](A x) { return score_of<kind>(x, largest, inverse); };
    const auto compared = [&](std::int64_t c, A x, int i) {
      const A own = held ? scores[i] : unscaled(x);
      if constexpr (kind == Scores::softmax) {
        return own * inverse;
      } else {
        return own + (route.bias.empty() ? A{0} : route.bias[c]);
      }
    };
    [[maybe_unused]] std::uint64_t open = 0;
    if constexpr (groups) {
      if (route.group_limit > 0) open = open_groups(route, logits, compared);
    }
    const auto key = [&](std::int64_t c, A x, int i) {
      if constexpr (groups) {
        if (route.group_limit > 0 && !(open >> route.group[c] & 1)) return std::numeric_limits<A>::quiet_NaN();
      }
      if constexpr (kind == Scores::softmax) {
        return x;
      } else {
        return compared(c, x, i);
      }
    };
    choose(route, logits, t, key, score, counts);
#pragma unroll
    for (int i = 0; i < held_columns; ++i) sums[i] += static_cast<double>(scores[i] * inverse);
    if constexpr (kind == Scores::softmax) {
      const A log_sum_exp = largest + std::log(sum);
      square += static_cast<double>(log_sum_exp) * static_cast<double>(log_sum_exp);
    }
    if (loads && route.entropy) {
      const auto probability = [&](A x, int i) { return (held ? scores[i] : unscaled(x)) * inverse; };
      entropy += static_cast<double>(entropy_of(logits, probability));
    }
  }
  if (!loads) return;
  if (lane() == 0) {
    squares[warp()] = square;
    entropies[warp()] = entropy;
  }
  __syncthreads();
  double* total = partial.row(blockIdx.x);
  counts.finish(total);
  if constexpr (held > 0) {
    add_scores<held>(sums, of_warps, experts, total + experts);
  } else {
    add_scores<kind>(route, begin, end, total + experts);
  }
  if (threadIdx.x != 0) return;
  for (int w = 1; w < router_warps; ++w) {
    square += squares[w];
    entropy += entropies[w];
  }
  total[2 * experts] = square;
  total[2 * experts + 1] = entropy;
}

/// Writes the load of each sequence: the sum of its chunks' rows of `partial`.
__global__ void __launch_bounds__(sum_columns_threads)
    add_load_chunks(Matrix<double> partial, std::int64_t of_sequence, Matrix<double> load) {
  const std::int64_t s = blockIdx.x;
  sum_columns_of(partial.rows_from(s * of_sequence, of_sequence), blockIdx.y,
                 [&](std::int64_t c, double sum) { load.row(s)[c] = sum; });
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const RouteTokens<A>& route) {
  require_fitting(route);
  const std::int64_t experts = route.logits.cols, k = route.index.cols;
  const RouterChunks chunks = chunks_of(route, route.load);
  const bool loads = route.load.rows > 0;
  const bool by_rank = k * experts <= max_local_counts;
  std::shared_ptr<std::byte> memory;
  Matrix<double> partial;
  if (loads) {
    const auto size = static_cast<std::size_t>(chunks.count() * load_width(experts));
    memory = stream.memory().allocate(size * sizeof(double), MemoryKind::buffers);
    partial = {reinterpret_cast<double*>(memory.get()), chunks.count(), load_width(experts)};
  }
  const auto launch = [&]<int held, Scores scores, bool groups>() {
    const auto local = static_cast<std::size_t>(experts) * ((held ? router_warps * sizeof(double) : 0) +
                                                            static_cast<std::size_t>(by_rank ? k : 1) * sizeof(int));
    start_shared(stream, "RouteTokens", route_tokens<A, held, scores, groups>, blocks_of(chunks), router_threads,
                 loads ? local : 0, route, chunks, partial, by_rank);
  };
  if (route.group_limit > 0) {
    with_kernel(route, [&]<int held, Scores scores>() { launch.template operator()<held, scores, true>(); });
  } else {
    with_kernel(route, [&]<int held, Scores scores>() { launch.template operator()<held, scores, false>(); });
  }
  if (!loads) return;
  const dim3 grid(static_cast<unsigned>(route.load.rows), blocks_for(route.load.cols, warp_size));
  start(stream, "RouteTokens", add_load_chunks, grid, sum_columns_threads, partial, chunks.of_sequence(), route.load);
  if (!route.probability.empty()) run(stream, SumColumns{route.load.cols_from(experts, experts), route.probability});
  if (!route.entropies.empty()) run(stream, SumColumns{route.load.cols_from(2 * experts + 1, 1), route.entropies});
}

LYCEUM_ROUTER_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
