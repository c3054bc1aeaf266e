#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/error.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/logistic.h"
#include "kernels/router.h"
#include "kernels/router_chunks.h"
#include "kernels/router_scores.h"

namespace lyceum {

// One thread block per chunk of a sequence (RouterChunks). One warp per token: it reads the token's logits once if they
// fit into its registers.
constexpr int router_threads = 256, router_warps = router_threads / warp_size;

/// Index of the thread's warp in the block, and of its lane in the warp.
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / warp_size; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % warp_size; }

/// A row of logits, distributed over the lanes of a warp: lane l has columns l, l + 32, …. Each lane holds up to `held`
/// of them in registers; if `held` is 0, it reads them from memory.
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
  /// Calls f(column, value, index among the lane's columns) for this lane's columns.
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

/// Returns the score of a logit. For softmax, `largest` is the row's largest logit and `inverse` is one over the sum of
/// its exponentials.
template <Scores scores, class A>
__device__ A score_of(A x, A largest, A inverse) {
  if constexpr (scores == Scores::softmax) {
    return std::exp(x - largest) * inverse;
  } else {
    constexpr A least = least_logit;
    if (x < least) x = least;  // this comparison keeps NaN
    if constexpr (scores == Scores::sigmoid) return logistic(x);
    return std::sqrt(softplus(x));
  }
}

/// Returns −Σ p log p over a row, the same in all lanes, where p(logit, index among the lane's columns) are the
/// probabilities. All lanes of the warp must call it.
template <class A, int held, class Probability>
__device__ A entropy_of(const Row<A, held>& logits, const Probability& probability) {
  A own = 0;
  logits.each([&](std::int64_t, A x, int i) {
    const A p = probability(x, i);
    own -= p * log_or_zero(p);
  });
  return join_warp(own, Sum{});
}

/// Calls f.operator()<held, scores>() for rows of `cols` columns. There are only three values of `held`, since each
/// multiplies the number of kernels to compile.
template <Scores scores, class F>
void with_held(std::int64_t cols, const F& f) {
  if (cols <= 2 * warp_size) return f.template operator()<2, scores>();
  if (cols <= 8 * warp_size) return f.template operator()<8, scores>();
  f.template operator()<0, scores>();
}
/// Calls f.operator()<held, scores>() for the scores and the number of columns of `route`.
template <class Route, class F>
void with_kernel(const Route& route, const F& f) {
  switch (route.scores) {
    case Scores::softmax: return with_held<Scores::softmax>(route.logits.cols, f);
    case Scores::sigmoid: return with_held<Scores::sigmoid>(route.logits.cols, f);
    case Scores::sqrt_softplus: return with_held<Scores::sqrt_softplus>(route.logits.cols, f);
  }
}

/// Number of thread blocks: one per chunk. Throws an Error if these are too many for a launch.
inline unsigned blocks_of(const RouterChunks& chunks) {
  require(chunks.count() <= std::numeric_limits<std::int32_t>::max(),
          "RouteTokens: {} chunks of sequences are too many for a launch", chunks.count());
  return static_cast<unsigned>(chunks.count());
}

}  // namespace lyceum
