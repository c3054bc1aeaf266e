#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/router_scores.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/router_checks.h"
#include "kernels/router_chunks.h"
#include "kernels/sum_columns.h"

namespace lyceum {

namespace {

/// True if `key` ranks before `other`, which has a lower index: if it is larger, or a number while `other` is NaN.
template <class A>
bool beats(A key, A other) {
  return key > other || (std::isnan(other) && !std::isnan(key));
}

/// Writes the indices and values of the k largest keys of a row, in descending order. Inserts each key into the sorted
/// list of the best k so far; most keys fail the comparison with the last of them.
template <class A>
void top_of_row(const A* keys, std::int64_t cols, std::int64_t k, std::int32_t* index, A* value) {
  for (std::int64_t c = 0; c < cols; ++c) {
    const A key = keys[c];
    if (c >= k && !beats(key, value[k - 1])) continue;
    std::int64_t position = std::min(c, k - 1);
    for (; position > 0 && beats(key, value[position - 1]); --position) {
      value[position] = value[position - 1];
      index[position] = index[position - 1];
    }
    value[position] = key;
    index[position] = static_cast<std::int32_t>(c);
  }
}

/// scores = exp(logits − largest). Returns their sum.
template <class A>
A shifted_exponentials(const A* logits, std::int64_t cols, A largest, A* scores) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) {
    scores[c] = fast_exp(logits[c] - largest);
    sum += scores[c];
  }
  return sum;
}

/// Computes sigmoid or sqrt_softplus scores. Returns their sum.
template <Scores kind, class A>
A separate_scores(const A* logits, std::int64_t cols, A* scores) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) {
    scores[c] = score_of<kind>(logits[c]);
    sum += scores[c];
  }
  return sum;
}

/// The experts with the largest keys of a token, and these keys.
template <class A>
struct Best {
  std::vector<std::int32_t> index;
  std::vector<A> keys;

  explicit Best(std::int64_t count) : index(static_cast<std::size_t>(count)), keys(index.size()) {}
};

/// Writes the choices and gates of token t, whose scores are `scores` · scale. `best` is scratch memory for route.skip
/// + k experts if route.skip > 0.
template <class A>
void choose(const RouteTokens<A>& route, std::int64_t t, const A* keys, const A* scores, A scale, Best<A>& best) {
  const std::int64_t always = route.always_on, experts = route.logits.cols - always, k = choices_per_token(route);
  std::int32_t* index = route.index.row(t);
  A* gates = route.gates.row(t);
  std::fill(index + k, index + route.index.cols, -1);
  std::fill(gates + k, gates + route.gates.cols, A{0});
  if (k == 0) return;
  if (route.skip == 0) {
    top_of_row(keys + always, experts, k, index, gates);
  } else {
    top_of_row(keys + always, experts, route.skip + k, best.index.data(), best.keys.data());
    std::copy_n(best.index.data() + route.skip, k, index);
  }
  A sum = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    if (route.even) index[j] = static_cast<std::int32_t>(((route.first_token + t) * k + j) % experts);
    index[j] += static_cast<std::int32_t>(always);
    gates[j] = scores[index[j]] * scale;
    sum += gates[j];
  }
  if (route.rule == Gates::ones) {
    std::fill_n(gates, k, A{1});
  } else if (route.rule != Gates::raw) {
    for (std::int64_t j = 0; j < k; ++j) gates[j] /= sum;
  }
  for (std::int64_t j = 0; j < k; ++j) gates[j] *= static_cast<A>(route.gate_scale);
}

/// Adds token t, whose probabilities are scores · inverse, to the load of its sequence or chunk.
template <class A>
void add_to_load(const RouteTokens<A>& route, std::int64_t t, const A* scores, A inverse, double* load) {
  const std::int64_t experts = route.logits.cols;
  for (std::int64_t j = 0; j < choices_per_token(route); ++j) load[route.index.row(t)[j]] += 1;
  double* sums = load + experts;
#pragma omp simd
  for (std::int64_t e = 0; e < experts; ++e) sums[e] += static_cast<double>(scores[e] * inverse);
  if (route.entropy) sums[experts + 1] += static_cast<double>(entropy_of(scores, experts, inverse));
  if (route.scores != Scores::softmax) return;
  const A log_sum_exp = route.norms.row(t)[0] + std::log(route.norms.row(t)[1]);
  sums[experts] += static_cast<double>(log_sum_exp) * static_cast<double>(log_sum_exp);
}

/// The two largest scores of a group. NaNs are ignored.
template <class A>
struct TwoBest {
  A best = -std::numeric_limits<A>::infinity(), second = best;

  void add(A score) {
    if (score > best) {
      second = best;
      best = score;
    } else if (score > second) {
      second = score;
    }
  }
  A score(GroupScore by) const { return by == GroupScore::maximum || std::isinf(second) ? best : best + second; }
};

/// Routes one token at a time, as RouteTokens describes. Owns memory for intermediate results, so each thread needs
/// one.
template <class A>
struct TokenRouter {
  const RouteTokens<A>& route;
  std::vector<A> scores, keys;
  std::vector<TwoBest<A>> of_group;
  std::vector<bool> allowed;  // [groups]: true for the groups that the token may choose from
  Best<A> best;

  explicit TokenRouter(const RouteTokens<A>& route)
      : route(route),
        scores(static_cast<std::size_t>(route.logits.cols)),
        keys(route.bias.empty() && route.group_limit == 0 ? 0 : scores.size()),
        of_group(static_cast<std::size_t>(route.groups)),
        allowed(of_group.size()),
        best(route.skip > 0 ? route.skip + route.index.cols : 0) {}

  /// Selects the route.group_limit best groups by scores · scale + bias and replaces the keys of experts in other
  /// groups by NaN, which is never chosen.
  void restrict_to_best_groups(A scale) {
    std::fill(of_group.begin(), of_group.end(), TwoBest<A>{});
    for (std::size_t e = 0; e < scores.size(); ++e) {
      const A bias = route.bias.empty() ? A{0} : route.bias[e];
      of_group[static_cast<std::size_t>(route.group[e])].add(scores[e] * scale + bias);
    }
    std::fill(allowed.begin(), allowed.end(), false);
    for (std::int64_t chosen = 0; chosen < route.group_limit; ++chosen) {
      std::size_t best = allowed.size();
      for (std::size_t g = 0; g < allowed.size(); ++g) {
        const auto score = [&](std::size_t group) { return of_group[group].score(route.group_score); };
        if (!allowed[g] && (best == allowed.size() || score(g) > score(best))) best = g;
      }
      allowed[best] = true;
    }
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (!allowed[static_cast<std::size_t>(route.group[e])]) keys[e] = std::numeric_limits<A>::quiet_NaN();
    }
  }

  /// Routes token t by softmax scores. `load`: sums that the token is added to, or null.
  void route_softmax(std::int64_t t, double* load) {
    const std::int64_t experts = route.logits.cols;
    const A* logits = route.logits.row(t);
    const A largest = row_maximum(logits, experts), sum = shifted_exponentials(logits, experts, largest, scores.data());
    route.norms.row(t)[0] = largest;
    route.norms.row(t)[1] = sum;
    if (route.group_limit > 0) {
      std::copy_n(logits, experts, keys.data());
      restrict_to_best_groups(A{1} / sum);
      logits = keys.data();
    }
    choose(route, t, logits, scores.data(), A{1} / sum, best);
    if (load) add_to_load(route, t, scores.data(), A{1} / sum, load);
  }

  /// Routes token t by sigmoid or sqrt_softplus scores, each of which depends on one logit only.
  template <Scores kind>
  void route_separate(std::int64_t t, double* load) {
    const A sum = separate_scores<kind>(route.logits.row(t), route.logits.cols, scores.data());
    route.norms.row(t)[0] = 0;
    route.norms.row(t)[1] = sum;
    for (std::size_t e = 0; e < keys.size(); ++e) keys[e] = scores[e] + (route.bias.empty() ? A{0} : route.bias[e]);
    if (route.group_limit > 0) restrict_to_best_groups(A{1});
    choose(route, t, keys.empty() ? scores.data() : keys.data(), scores.data(), A{1}, best);
    if (load) add_to_load(route, t, scores.data(), A{1} / sum, load);
  }

  void operator()(std::int64_t t, double* load) {
    switch (route.scores) {
      case Scores::softmax: return route_softmax(t, load);
      case Scores::sigmoid: return route_separate<Scores::sigmoid>(t, load);
      case Scores::sqrt_softplus: return route_separate<Scores::sqrt_softplus>(t, load);
    }
  }
};

/// load = the sums of the chunks of each sequence, added up in order.
void add_chunks(const std::vector<double>& partial, const RouterChunks& chunks, Matrix<double> load) {
  const auto width = static_cast<std::size_t>(load.cols);
  auto from = partial.begin();
  for (std::int64_t s = 0; s < load.rows; ++s) {
    std::fill_n(load.row(s), width, 0.0);
    for (std::int64_t c = 0; c < chunks.of_sequence(); ++c) {
      for (std::size_t i = 0; i < width; ++i) load.row(s)[i] += *from++;
    }
  }
}

/// Adds the choices of all tokens to route.counts.
template <class A>
void count_choices(const CpuStream& stream, const RouteTokens<A>& route) {
  const std::int64_t rows = route.index.rows;
  parallel_for(stream, route.counts.rows > 0 ? choices_per_token(route) : 0, rows_per_thread(rows),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t r = 0; r < rows; ++r) {
                   for (std::int64_t j = first; j < last; ++j) ++route.counts.row(j)[route.index.row(r)[j]];
                 }
               });
}

}  // namespace

template <class A>
void run(const CpuStream& stream, const RouteTokens<A>& route) {
  require_fitting(route);
  require(route.choices.empty() || (choices_per_token(route) >= 1 && choices_per_token(route) <= route.index.cols),
          "RouteTokens: a token cannot make {} choices: the result has {} columns", choices_per_token(route),
          route.index.cols);
  const std::int64_t experts = route.logits.cols;
  const RouterChunks chunks = chunks_of(route, route.load);
  const auto width = static_cast<std::size_t>(route.load.cols);
  std::vector<double> partial(route.load.rows > 0 ? static_cast<std::size_t>(chunks.count()) * width : 0, 0.0);
  const std::int64_t grain = rows_per_thread(8 * std::min(RouterChunks::rows, chunks.seq_len) * experts);
  parallel_for(stream, chunks.count(), grain, [&](std::int64_t first, std::int64_t last) {
    TokenRouter<A> route_token(route);
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      double* load = partial.empty() ? nullptr : partial.data() + static_cast<std::size_t>(chunk) * width;
      for (std::int64_t t = chunks.begin(chunk); t < chunks.end(chunk); ++t) route_token(t, load);
    }
  });
  add_chunks(partial, chunks, route.load);
  count_choices(stream, route);
  if (!route.probability.empty()) run(stream, SumColumns{route.load.cols_from(experts, experts), route.probability});
  if (!route.entropies.empty()) run(stream, SumColumns{route.load.cols_from(2 * experts + 1, 1), route.entropies});
}

LYCEUM_ROUTER_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
