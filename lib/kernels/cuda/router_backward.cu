#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/router_rows.cuh"
#include "kernels/router_backward.h"
#include "kernels/router_checks.h"
#include "kernels/router_chunks.h"
#include "kernels/router_scores.h"

namespace lyceum {

namespace {

/// A chosen expert of a token, its score, and the gradient of its gate before it is scaled.
template <class A>
struct Choice {
  std::int64_t expert;
  A score, d_gate;
};

template <Scores scores, class A>
__device__ Choice<A> choice_of(const RouteTokensBackward<A>& route, std::int64_t t, std::int64_t j, A largest,
                               A inverse) {
  const std::int32_t expert = route.index.row(t)[j];
  return {expert, score_of<scores>(route.logits.row(t)[expert], largest, inverse),
          static_cast<A>(route.gate_scale) * route.d_gates.row(t)[j]};
}

/// The gradient of the scores v of a token's chosen experts through the gates g, with dg the gradient of the gates. It
/// needs only Σ v and Σ v · dg over the chosen experts:
///   raw           dv_j = dg_j
///   renormalized  g = v / Σv: dv_j = (dg_j − Σ_i g_i dg_i) / Σv
///   detached      dv_j = dg_j / Σv
template <class A>
struct ThroughGates {
  Gates rule;
  A sum = 0, weighted = 0;

  __device__ void add(const Choice<A>& choice) {
    sum += choice.score;
    weighted += choice.score * choice.d_gate;
  }
  __device__ void join() {
    weighted = join_warp(weighted, Sum{});
    if (rule == Gates::renormalized || rule == Gates::detached) sum = join_warp(sum, Sum{});
  }
  /// Returns dv_j of an expert whose gate has the gradient d_gate.
  __device__ A d_score(A d_gate) const {
    switch (rule) {
      case Gates::raw: return d_gate;
      case Gates::renormalized: return (d_gate - weighted / sum) / sum;
      case Gates::detached: return d_gate / sum;
      default: return 0;
    }
  }
  /// Returns Σ dv · v over the chosen experts.
  __device__ A dot() const {
    if (rule == Gates::raw) return weighted;
    return rule == Gates::detached ? weighted / sum : A{0};
  }
};

/// Computes the gradient of the logits x. ds and dp come from the load, dv from the gates (ThroughGates).
/// Softmax: dx_i = s_i (ds_i − Σ ds · s) + 2 lse · d_square · s_i, where ds includes dv.
/// Other scores: dx_i = ds/dx ((dp_i − Σ dp · s / z) / z + dv_i).
/// With `entropy`, the gradient of H = −Σ p log p is added: −p_i (log p_i + H), for other scores times (ds/dx) / s.
/// One thread block per chunk of a sequence, one token per warp at a time.
template <class A, int held, Scores kind, bool entropy>
__global__ void __launch_bounds__(router_threads)
    route_tokens_backward(RouteTokensBackward<A> route, RouterChunks chunks) {
  constexpr int held_columns = held ? held : 1;
  const std::int64_t experts = route.logits.cols, k = route.d_gates.cols > 0 ? choices_per_token(route) : 0;
  const std::int64_t begin = chunks.begin(blockIdx.x), end = chunks.end(blockIdx.x);
  const double* d_load = route.d_load.rows ? route.d_load.row(blockIdx.x / chunks.of_sequence()) + experts : nullptr;
  const auto slope = [&](std::int64_t c) { return d_load ? static_cast<A>(d_load[c]) : A{0}; };
  const A d_square = slope(experts);
  A slopes[held_columns] = {};
#pragma unroll
  for (int i = 0; i < held; ++i) {
    if (const std::int64_t c = lane() + i * warp_size; c < experts) slopes[i] = slope(c);
  }
  const auto slope_at = [&](std::int64_t c, int i) { return held ? slopes[i] : slope(c); };
  for (std::int64_t t = begin + warp(); t < end; t += router_warps) {
    const Row<A, held> logits(route.logits.row(t), experts);
    const A largest = route.norms.row(t)[0], norm = route.norms.row(t)[1], inverse = A{1} / norm;
    const auto score = [&](A x) { return score_of<kind>(x, largest, inverse); };
    A dot = 0, scores[held_columns] = {};
    ThroughGates<A> gates{route.rule};
    logits.each([&](std::int64_t c, A x, int i) {
      scores[i] = score(x);
      dot += slope_at(c, i) * scores[i];
    });
    for (std::int64_t j = lane(); j < k; j += warp_size) gates.add(choice_of<kind>(route, t, j, largest, inverse));
    gates.join();
    dot = join_warp(dot, Sum{});
    // d_logit() is the derivative of a score times the gradient of the score by the load; the chosen experts are then
    // recomputed with that by their gates.
    A factor = 1, shift = 0;
    if constexpr (kind == Scores::softmax) {
      if (k > 0) dot += gates.dot();
      shift = 2 * (largest + std::log(norm)) * d_square - dot;
    } else {
      factor = inverse;
      shift = -dot * inverse;
    }
    const auto d_logit = [&](A score, A d_score) {
      if constexpr (kind == Scores::softmax) {
        return score * d_score;
      } else {
        return score * log_slope<kind>(score) * d_score;
      }
    };
    const auto by_load = [&](A slope) { return kind == Scores::softmax ? slope + shift : (slope + shift) * factor; };
    A* d_logits = route.d_logits.row(t);
    logits.each([&](std::int64_t c, A x, int i) {
      d_logits[c] = d_logit(held ? scores[i] : score(x), by_load(slope_at(c, i)));
    });
    __syncwarp();
    for (std::int64_t j = lane(); j < k; j += warp_size) {
      const Choice<A> chosen = choice_of<kind>(route, t, j, largest, inverse);
      d_logits[chosen.expert] = d_logit(chosen.score, by_load(slope(chosen.expert)) + gates.d_score(chosen.d_gate));
    }
    if constexpr (entropy) {
      const auto probability = [&](A x, int i) {
        return (held ? scores[i] : score(x)) * (kind == Scores::softmax ? A{1} : inverse);
      };
      const A of_row = entropy_of(logits, probability), d_entropy = slope(experts + 1);
      __syncwarp();
      logits.each([&](std::int64_t c, A x, int i) {
        const A p = probability(x, i), d_score = -p * (log_or_zero(p) + of_row);
        d_logits[c] += d_entropy * (kind == Scores::softmax ? d_score : log_slope<kind>(score(x)) * d_score);
      });
    }
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const RouteTokensBackward<A>& route) {
  require_fitting(route);
  const RouterChunks chunks = chunks_of(route, route.d_load);
  const auto launch = [&]<int held, Scores scores, bool entropy>() {
    start(stream, "RouteTokensBackward", route_tokens_backward<A, held, scores, entropy>, blocks_of(chunks),
          router_threads, route, chunks);
  };
  if (route.entropy && route.d_load.rows > 0) {
    with_kernel(route, [&]<int held, Scores scores>() { launch.template operator()<held, scores, true>(); });
  } else {
    with_kernel(route, [&]<int held, Scores scores>() { launch.template operator()<held, scores, false>(); });
  }
}

LYCEUM_ROUTER_BACKWARD_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
