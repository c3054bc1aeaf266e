#include "kernels/router_backward.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/router_scores.h"
#include "kernels/router_checks.h"
#include "kernels/router_chunks.h"

namespace lyceum {

namespace {

/// Computes the gradients of logits, one token at a time. Call begin_sequence() for each sequence, then write() for its
/// tokens. Each thread needs one.
template <class A>
struct TokenGradient {
  const RouteTokensBackward<A>& route;
  std::vector<A> slopes;                  // [experts]: d_load of the sequence by the sums of probabilities
  std::vector<A> scores;                  // [experts]: s of the token
  A square_slope = 0, entropy_slope = 0;  // d_load by the sums of squared log-sum-exps and of entropies
  std::vector<A> d_chosen;                // [k]: derivatives by the scores of the chosen experts, through the gates

  explicit TokenGradient(const RouteTokensBackward<A>& route)
      : route(route),
        slopes(static_cast<std::size_t>(route.logits.cols), A{0}),
        scores(slopes.size()),
        d_chosen(static_cast<std::size_t>(route.d_gates.cols > 0 ? choices_per_token(route) : 0)) {}

  /// Reads d_load of a sequence.
  void begin_sequence(std::int64_t sequence) {
    if (route.d_load.rows == 0) return;
    const double* from = route.d_load.row(sequence) + route.logits.cols;
    for (A& slope : slopes) slope = static_cast<A>(*from++);
    square_slope = static_cast<A>(*from++);
    entropy_slope = static_cast<A>(*from);
  }

  /// Computes d_chosen, the derivatives by the scores v of the chosen experts. With dg the gradient of the gates before
  /// they are scaled:
  ///   raw           dv_j = dg_j
  ///   renormalized  dv_j = (dg_j − Σ_i g_i dg_i) / Σv, with g = v / Σv
  ///   detached      dv_j = dg_j / Σv
  ///   ones          dv_j = 0
  /// Returns Σ_j dv_j v_j.
  A through_gates(std::int64_t t) {
    const std::int32_t* index = route.index.row(t);
    const A* d_gates = route.d_gates.row(t);
    const auto scale = static_cast<A>(route.gate_scale);
    A sum = 0, weighted = 0, dot = 0;
    for (std::size_t j = 0; j < d_chosen.size(); ++j) {
      const A score = scores[static_cast<std::size_t>(index[j])];
      sum += score;
      weighted += score * (scale * d_gates[j]);
    }
    for (std::size_t j = 0; j < d_chosen.size(); ++j) {
      const A d_gate = scale * d_gates[j];
      switch (route.rule) {
        case Gates::raw: d_chosen[j] = d_gate; break;
        case Gates::renormalized: d_chosen[j] = (d_gate - weighted / sum) / sum; break;
        case Gates::detached: d_chosen[j] = d_gate / sum; break;
        case Gates::ones: d_chosen[j] = 0; break;
      }
      dot += d_chosen[j] * scores[static_cast<std::size_t>(index[j])];
    }
    return dot;
  }

  /// Writes d_logits of token t.
  void write(std::int64_t t) {
    switch (route.scores) {
      case Scores::softmax: return through<Scores::softmax>(t);
      case Scores::sigmoid: return through<Scores::sigmoid>(t);
      case Scores::sqrt_softplus: return through<Scores::sqrt_softplus>(t);
    }
  }

  template <Scores kind>
  void through(std::int64_t t) {
    if constexpr (kind == Scores::softmax) {
      through_softmax(t);
    } else {
      through_separate<kind>(t);
    }
    if (route.entropy && route.d_load.rows > 0) add_entropy<kind>(t);
  }

  /// Adds the derivative of the entropy H = −Σ p log p, times entropy_slope: dH/dx_i = −p_i (log p_i + H) for softmax,
  /// and this times (ds_i/dx_i) / s_i for the other scores, for which p_i = s_i / z.
  template <Scores kind>
  void add_entropy(std::int64_t t) {
    const auto experts = static_cast<std::int64_t>(scores.size());
    const A inverse = kind == Scores::softmax ? A{1} : A{1} / route.norms.row(t)[1],
            entropy = entropy_of(scores.data(), experts, inverse);
    A* d_logits = route.d_logits.row(t);
    for (std::size_t e = 0; e < scores.size(); ++e) {
      const A p = scores[e] * inverse, d_score = -p * (log_or_zero(p) + entropy);
      d_logits[e] += entropy_slope * (kind == Scores::softmax ? d_score : log_slope<kind>(scores[e]) * d_score);
    }
  }

  /// Writes d_logits for softmax scores: dx_i = s_i (ds_i − Σ_j ds_j s_j) + 2 lse · square_slope · s_i, where ds is the
  /// sum of `slopes` and d_chosen, and lse is the log-sum-exp of the logits.
  void through_softmax(std::int64_t t) {
    const auto experts = static_cast<std::int64_t>(scores.size());
    const A* logits = route.logits.row(t);
    const A largest = route.norms.row(t)[0], sum = route.norms.row(t)[1], inverse = A{1} / sum;
    A* s = scores.data();
    const A* ds = slopes.data();
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t e = 0; e < experts; ++e) {
      s[e] = fast_exp(logits[e] - largest) * inverse;
      dot += ds[e] * s[e];
    }
    dot += through_gates(t);
    const A shift = 2 * (largest + std::log(sum)) * square_slope - dot;
    A* d_logits = route.d_logits.row(t);
#pragma omp simd
    for (std::int64_t e = 0; e < experts; ++e) d_logits[e] = s[e] * (ds[e] + shift);
    for (std::size_t j = 0; j < d_chosen.size(); ++j) {
      const std::int32_t e = route.index.row(t)[j];
      d_logits[e] += s[e] * d_chosen[j];
    }
  }

  /// Writes d_logits for sigmoid and sqrt_softplus scores, with probabilities p = s / z and their derivatives dp
  /// (`slopes`): ds_i = (dp_i − Σ_j dp_j p_j) / z + dv_i, dx_i = (ds_i/dx_i) · ds_i; dv is d_chosen.
  template <Scores kind>
  void through_separate(std::int64_t t) {
    const auto experts = static_cast<std::int64_t>(scores.size());
    const A* logits = route.logits.row(t);
    const A inverse = A{1} / route.norms.row(t)[1];
    A* s = scores.data();
    const A* dp = slopes.data();
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t e = 0; e < experts; ++e) {
      s[e] = score_of<kind>(logits[e]);
      dot += dp[e] * s[e] * inverse;
    }
    through_gates(t);
    A* d_logits = route.d_logits.row(t);
#pragma omp simd
    for (std::int64_t e = 0; e < experts; ++e) d_logits[e] = s[e] * log_slope<kind>(s[e]) * ((dp[e] - dot) * inverse);
    for (std::size_t j = 0; j < d_chosen.size(); ++j) {
      const std::int32_t e = route.index.row(t)[j];
      d_logits[e] += s[e] * log_slope<kind>(s[e]) * d_chosen[j];
    }
  }
};

}  // namespace

template <class A>
void run(const CpuStream& stream, const RouteTokensBackward<A>& route) {
  require_fitting(route);
  const RouterChunks chunks = chunks_of(route, route.d_load);
  const std::int64_t grain = rows_per_thread(8 * std::min(RouterChunks::rows, chunks.seq_len) * route.logits.cols);
  parallel_for(stream, chunks.count(), grain, [&](std::int64_t first, std::int64_t last) {
    TokenGradient<A> gradient(route);
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      if (chunk == first || chunk % chunks.of_sequence() == 0) gradient.begin_sequence(chunk / chunks.of_sequence());
      for (std::int64_t t = chunks.begin(chunk); t < chunks.end(chunk); ++t) gradient.write(t);
    }
  });
}

LYCEUM_ROUTER_BACKWARD_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
