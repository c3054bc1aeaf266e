#include <cstring>

#include "core/allocator.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/router_chunks.h"

namespace lyceum {

namespace {

// A block a piece of a sequence, a warp a token, whose logits it reads once where they fit into its registers.
constexpr int router_threads = 256, router_warps = router_threads / warp_size;
constexpr std::int64_t most_local_counts = 4096;

__device__ int warp() { return static_cast<int>(threadIdx.x) / warp_size; }
__device__ int lane() { return static_cast<int>(threadIdx.x) % warp_size; }

/// Lane l of the warp has the columns l, l + 32, …: `held` numbers in registers, or as many as there are in memory.
template <class A, int held>
struct Row {
  A values[held];
  std::int64_t cols;

  __device__ Row(const A* from, std::int64_t cols) : cols(cols) {
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const std::int64_t c = lane() + i * warp_size;
      values[i] = c < cols ? from[c] : A{0};
    }
  }
  /// f(column, value, place among the lane's columns)
  template <class F>
  __device__ void each(const F& f) const {
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const std::int64_t c = lane() + i * warp_size;
      if (c < cols) f(c, values[i], i);
    }
  }
};
template <class A>
struct Row<A, 0> {
  const A* values;
  std::int64_t cols;

  __device__ Row(const A* from, std::int64_t cols) : values(from), cols(cols) {}
  template <class F>
  __device__ void each(const F& f) const {
    for (std::int64_t c = lane(); c < cols; c += warp_size) f(c, values[c], 0);
  }
};

/// Numbers in the order of their size, with NaN before −∞.
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

/// The choice that follows on `expert` of rank `rank`, which become its own: the best of those that stand behind, so
/// that nothing need be marked as taken.
template <class A, int held, class Rank>
__device__ void to_next_choice(const Row<A, held>& logits, Rank& rank, int& expert) {
  constexpr unsigned nobody = ~0u;
  Rank best = 0;
  unsigned own = nobody;
  logits.each([&](std::int64_t c, A x, int) {
    const Rank here = rank_of(x);
    const bool behind = here < rank || (here == rank && c > expert);
    if (behind && (own == nobody || here > best)) {
      best = here;
      own = static_cast<unsigned>(c);
    }
  });
  rank = largest_of_warp(best);
  expert = static_cast<int>(__reduce_min_sync(whole_warp, best == rank ? own : nobody));
}

/// Choices of a block, by rank where there is room in its memory; otherwise all together, and those by rank are added
/// to the layer's at once. Integers are added atomically: their sum does not depend on the order.
struct Counts {
  int* local;  // [ranks, experts]; null where nothing is counted
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
  /// When all are counted: of one expert, the sum into `total`.
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

/// The experts and gates of token t.
template <class A, int held>
__device__ void choose(const RouteTokens<A>& route, const Row<A, held>& logits, std::int64_t t, A largest, A inverse,
                       const Counts& counts) {
  const std::int64_t k = route.index.cols;
  auto rank = static_cast<decltype(rank_of(A{}))>(-1);
  int expert = -1;
  A sum = 0;
  for (std::int64_t from = 0; from < k; from += warp_size) {
    std::int64_t own = 0;
    for (std::int64_t j = from; j < k && j < from + warp_size; ++j) {
      to_next_choice(logits, rank, expert);
      if (j == from + lane()) own = expert;
    }
    const std::int64_t j = from + lane();
    if (j >= k) continue;
    if (route.even) own = (t * k + j) % route.logits.cols;
    const A gate = std::exp(route.logits.row(t)[own] - largest) * inverse;
    route.index.row(t)[j] = static_cast<std::int32_t>(own);
    route.gates.row(t)[j] = gate;
    sum += gate;
    counts.add(j, own);
  }
  if (!route.renormalize) return;
  sum = join_warp(sum, Sum{});
  for (std::int64_t j = lane(); j < k; j += warp_size) route.gates.row(t)[j] /= sum;  // written by this lane
}

/// Σ scores of a block's tokens, where its warps hold their rows in registers: each adds up its own, then in order.
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

/// The same where they do not: once more down the columns.
template <class A>
__device__ void add_scores(const RouteTokens<A>& route, std::int64_t begin, std::int64_t end, double* total) {
  for (std::int64_t c = threadIdx.x; c < route.logits.cols; c += router_threads) {
    double sum = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      const A* norm = route.norms.row(t);
      sum += static_cast<double>(std::exp(route.logits.row(t)[c] - norm[0]) * (A{1} / norm[1]));
    }
    total[c] = sum;
  }
}

/// partial: [pieces, load_width(experts)], or none where no load is wanted.
template <class A, int held>
__global__ void __launch_bounds__(router_threads)
    route_tokens(RouteTokens<A> route, RouterChunks chunks, Matrix<double> partial, bool by_rank) {
  constexpr int places = held ? held : 1;
  __shared__ double squares[router_warps];
  const std::int64_t experts = route.logits.cols, begin = chunks.begin(blockIdx.x), end = chunks.end(blockIdx.x);
  const bool loads = partial.rows > 0;
  auto* of_warps = reinterpret_cast<double*>(launched_shared());
  int* local = reinterpret_cast<int*>(of_warps + (held ? router_warps * experts : 0));
  const Counts counts{loads ? local : nullptr, by_rank, by_rank ? route.index.cols : 1, experts, route.counts};
  if (loads) counts.clear();
  __syncthreads();

  double sums[places] = {}, square = 0;
  for (std::int64_t t = begin + warp(); t < end; t += router_warps) {
    const Row<A, held> logits(route.logits.row(t), experts);
    A largest = -std::numeric_limits<A>::infinity(), sum = 0, scores[places] = {};
    logits.each([&](std::int64_t, A x, int) { largest = Largest{}(largest, x); });
    largest = join_warp(largest, Largest{});
    logits.each([&](std::int64_t, A x, int i) { sum += scores[i] = std::exp(x - largest); });
    sum = join_warp(sum, Sum{});
    const A inverse = A{1} / sum, log_sum_exp = largest + std::log(sum);
    if (lane() < 2) route.norms.row(t)[lane()] = lane() == 0 ? largest : sum;
    choose(route, logits, t, largest, inverse, counts);
#pragma unroll
    for (int i = 0; i < places; ++i) sums[i] += static_cast<double>(scores[i] * inverse);
    square += static_cast<double>(log_sum_exp) * static_cast<double>(log_sum_exp);
  }
  if (!loads) return;
  if (lane() == 0) squares[warp()] = square;
  __syncthreads();
  double* total = partial.row(blockIdx.x);
  counts.finish(total);
  if constexpr (held > 0) {
    add_scores<held>(sums, of_warps, experts, total + experts);
  } else {
    add_scores(route, begin, end, total + experts);
  }
  if (threadIdx.x != 0) return;
  for (int w = 1; w < router_warps; ++w) square += squares[w];
  total[2 * experts] = square;
}

/// A block some columns, a lane each: warp w adds up every warps-th row from w on, then the warps' sums are added. The
/// same in every thread of warp 0.
__device__ double sum_column(const Matrix<const double>& x, std::int64_t c) {
  __shared__ double partial[router_warps][warp_size];
  double sum = 0;
  for (std::int64_t r = warp(); r < x.rows && c < x.cols; r += router_warps) sum += x.row(r)[c];
  partial[warp()][lane()] = sum;
  __syncthreads();
  for (int w = 1; w < router_warps && warp() == 0; ++w) sum += partial[w][lane()];
  return sum;
}

__device__ std::int64_t column(unsigned block) { return static_cast<std::int64_t>(block) * warp_size + lane(); }

/// load = the sums of the pieces of each sequence.
__global__ void __launch_bounds__(router_threads)
    add_load_chunks(Matrix<double> partial, std::int64_t of_sequence, Matrix<double> load) {
  const std::int64_t s = blockIdx.x, c = column(blockIdx.y);
  const double sum = sum_column(partial.rows_from(s * of_sequence, of_sequence), c);
  if (warp() == 0 && c < load.cols) load.row(s)[c] = sum;
}

__global__ void __launch_bounds__(router_threads) sum_columns(SumColumns sums) {
  const std::int64_t c = column(blockIdx.x);
  const double sum = sum_column(sums.x, c);
  if (warp() == 0 && c < sums.x.cols) sums.sums[c] += sum;
}

/// A choice of a token, and what its gate asks of its score.
template <class A>
struct Choice {
  std::int64_t expert;
  A score, d_score;
};

/// Gates g = v / Σv: dv_j = (dg_j − Σ_i g_i dg_i) / Σv.
template <class A>
__device__ Choice<A> choice_of(const RouteTokensBackward<A>& route, std::int64_t t, std::int64_t j, A largest,
                               A inverse) {
  const std::int32_t expert = route.index.row(t)[j];
  return {expert, std::exp(route.logits.row(t)[expert] - largest) * inverse, route.d_gates.row(t)[j]};
}

/// dx_i = s_i (ds_i − Σ ds · s) + 2 lse · d_square · s_i, with ds by the load and by the gates.
template <class A, int held>
__global__ void __launch_bounds__(router_threads)
    route_tokens_backward(RouteTokensBackward<A> route, RouterChunks chunks) {
  constexpr int places = held ? held : 1;
  const std::int64_t experts = route.logits.cols, k = route.d_gates.cols;
  const std::int64_t begin = chunks.begin(blockIdx.x), end = chunks.end(blockIdx.x);
  const double* d_load = route.d_load.rows ? route.d_load.row(blockIdx.x / chunks.of_sequence()) + experts : nullptr;
  const auto slope = [&](std::int64_t c) { return d_load ? static_cast<A>(d_load[c]) : A{0}; };
  const A d_square = slope(experts);
  A slopes[places] = {};
#pragma unroll
  for (int i = 0; i < held; ++i) {
    if (const std::int64_t c = lane() + i * warp_size; c < experts) slopes[i] = slope(c);
  }
  const auto slope_at = [&](std::int64_t c, int i) { return held ? slopes[i] : slope(c); };
  for (std::int64_t t = begin + warp(); t < end; t += router_warps) {
    const Row<A, held> logits(route.logits.row(t), experts);
    const A largest = route.norms.row(t)[0], norm = route.norms.row(t)[1], inverse = A{1} / norm;
    const auto score = [&](A x) { return std::exp(x - largest) * inverse; };
    A dot = 0, sum = 0, weighted = 0, scores[places] = {};
    logits.each([&](std::int64_t c, A x, int i) {
      scores[i] = score(x);
      dot += slope_at(c, i) * scores[i];
    });
    for (std::int64_t j = lane(); j < k; j += warp_size) {
      const Choice<A> chosen = choice_of(route, t, j, largest, inverse);
      sum += chosen.score;
      weighted += chosen.score * chosen.d_score;
    }
    weighted = join_warp(weighted, Sum{});
    dot = join_warp(dot, Sum{});
    if (route.renormalize) {  // Σ dv · v = 0
      sum = join_warp(sum, Sum{});
    } else {
      dot += weighted;
    }
    const A shift = 2 * (largest + std::log(norm)) * d_square - dot;
    A* d_logits = route.d_logits.row(t);
    logits.each(
        [&](std::int64_t c, A x, int i) { d_logits[c] = (held ? scores[i] : score(x)) * (slope_at(c, i) + shift); });
    __syncwarp();
    for (std::int64_t j = lane(); j < k; j += warp_size) {
      const Choice<A> chosen = choice_of(route, t, j, largest, inverse);
      const A d_score = route.renormalize ? (chosen.d_score - weighted / sum) / sum : chosen.d_score;
      d_logits[chosen.expert] = chosen.score * (slope(chosen.expert) + shift + d_score);
    }
  }
}

/// f.operator()<held>() for rows of so many columns.
template <class F>
void with_held(std::int64_t cols, const F& f) {
  const std::int64_t places = (cols + warp_size - 1) / warp_size;
  if (places <= 1) return f.template operator()<1>();
  if (places <= 2) return f.template operator()<2>();
  if (places <= 4) return f.template operator()<4>();
  if (places <= 8) return f.template operator()<8>();
  f.template operator()<0>();
}

unsigned blocks_of(const RouterChunks& chunks) {
  require(chunks.count() <= std::numeric_limits<std::int32_t>::max(), "RouteTokens: {} pieces of sequences",
          chunks.count());
  return static_cast<unsigned>(chunks.count());
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const RouteTokens<A>& route) {
  require_fitting(route);
  const std::int64_t experts = route.logits.cols, k = route.index.cols;
  const RouterChunks chunks = chunks_of(route, route.load);
  const bool loads = route.load.rows > 0;
  const bool by_rank = k * experts <= most_local_counts;
  std::shared_ptr<std::byte> memory;
  Matrix<double> partial;
  if (loads) {
    const auto size = static_cast<std::size_t>(chunks.count() * load_width(experts));
    memory = stream.memory().allocate(size * sizeof(double), MemoryKind::buffers);
    partial = {reinterpret_cast<double*>(memory.get()), chunks.count(), load_width(experts)};
  }
  with_held(experts, [&]<int held>() {
    const auto local = static_cast<std::size_t>(experts) * ((held ? router_warps * sizeof(double) : 0) +
                                                            static_cast<std::size_t>(by_rank ? k : 1) * sizeof(int));
    start_shared(stream, "RouteTokens", route_tokens<A, held>, blocks_of(chunks), router_threads, loads ? local : 0,
                 route, chunks, partial, by_rank);
  });
  if (!loads) return;
  const dim3 grid(static_cast<unsigned>(route.load.rows), blocks_for(route.load.cols, warp_size));
  start(stream, "RouteTokens", add_load_chunks, grid, router_threads, partial, chunks.of_sequence(), route.load);
  if (!route.probability.empty()) run(stream, SumColumns{route.load.cols_from(experts, experts), route.probability});
}

template <class A>
void run(const CudaStream& stream, const RouteTokensBackward<A>& route) {
  require_fitting(route);
  const RouterChunks chunks = chunks_of(route, route.d_load);
  with_held(route.logits.cols, [&]<int held>() {
    start(stream, "RouteTokensBackward", route_tokens_backward<A, held>, blocks_of(chunks), router_threads, route,
          chunks);
  });
}

void run(const CudaStream& stream, const SumColumns& sum) {
  require_length("SumColumns", "sums", sum.sums, sum.x.cols);
  start(stream, "SumColumns", sum_columns, blocks_for(sum.x.cols, warp_size), router_threads, sum);
}

template void run(const CudaStream&, const RouteTokens<float>&);
template void run(const CudaStream&, const RouteTokens<double>&);
template void run(const CudaStream&, const RouteTokensBackward<float>&);
template void run(const CudaStream&, const RouteTokensBackward<double>&);

}  // namespace lyceum
