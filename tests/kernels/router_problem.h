#pragma once

#include <numeric>
#include <optional>

#include "kernels/router.h"
#include "support/grid.h"
#include "support/launch_on.h"

// Test problems for RouteTokens and its backward, with expected results computed by the formulas in double.
namespace lyceum::router_problem {

/// The sizes and options of a RouteTokens; members have the names that they have there.
struct Case {
  std::int64_t tokens, experts, k;
  std::int64_t sequences = 0, seq_len = 1, first = 0;  // 0 sequences: without a load
  Gates rule = Gates::raw;
  bool even = false;
  Scores scores = Scores::softmax;
  bool biased = false;
  std::int64_t groups = 0, group_limit = 0;
  bool entropy = false;
  std::int64_t choices = 0;  // number of choices of a token; 0: k, and RouteTokens::choices is empty
  std::int64_t skip = 0;
  double gate_scale = 1;
  GroupScore group_score = GroupScore::top2;
  std::int64_t first_token = 0;

  std::int64_t chosen() const { return choices ? choices : k; }
  std::vector<double> stated_choices() const {
    return std::vector<double>(choices ? 1 : 0, static_cast<double>(choices));
  }
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.tokens << " tokens from " << c.first << " of " << c.sequences << " x " << c.seq_len << ", top " << c.k
             << " of " << c.experts << ", gates " << static_cast<int>(c.rule) << (c.even ? ", even" : "")
             << " from token " << c.first_token << ", scores " << static_cast<int>(c.scores)
             << (c.biased ? ", biased" : "") << ", " << c.group_limit << " groups of " << c.groups << ", " << c.chosen()
             << " chosen behind " << c.skip << (c.entropy ? ", entropies" : "") << ", gates times " << c.gate_scale
             << (c.group_score == GroupScore::maximum ? ", groups by maximum" : "");
}

/// Shapes with few and many experts, with and without loads that begin within a sequence, and all options.
inline const std::vector<Case> cases{
    {.tokens = 0, .experts = 5, .k = 2},
    {.tokens = 1, .experts = 1, .k = 1, .sequences = 1, .seq_len = 1},
    {.tokens = 9, .experts = 1, .k = 1, .sequences = 3, .seq_len = 3, .rule = Gates::renormalized},
    {.tokens = 0, .experts = 7, .k = 3, .sequences = 2, .seq_len = 4, .first = 3},
    {.tokens = 20, .experts = 7, .k = 7, .sequences = 4, .seq_len = 5},
    {.tokens = 10, .experts = 33, .k = 2, .sequences = 3, .seq_len = 7, .first = 5, .rule = Gates::renormalized},
    {.tokens = 35, .experts = 7, .k = 3, .sequences = 1, .seq_len = 35, .even = true},
    {.tokens = 260, .experts = 64, .k = 6, .sequences = 2, .seq_len = 130},
    {.tokens = 150, .experts = 64, .k = 8, .sequences = 3, .seq_len = 100, .first = 75, .rule = Gates::renormalized},
    {.tokens = 70, .experts = 64, .k = 6, .rule = Gates::renormalized},
    {.tokens = 66, .experts = 160, .k = 6, .sequences = 1, .seq_len = 66},
    {.tokens = 9, .experts = 160, .k = 160, .sequences = 3, .seq_len = 3, .rule = Gates::renormalized},
    {.tokens = 70, .experts = 257, .k = 8, .sequences = 1, .seq_len = 70, .rule = Gates::renormalized, .even = true},
    {.tokens = 10, .experts = 1000, .k = 8, .sequences = 2, .seq_len = 6, .first = 1},
    {.tokens = 3, .experts = 257, .k = 257, .sequences = 1, .seq_len = 3, .rule = Gates::renormalized},
    {.tokens = 3, .experts = 5, .k = 0, .sequences = 1, .seq_len = 3},
    {.tokens = 10, .experts = 33, .k = 2, .sequences = 3, .seq_len = 7, .first = 5, .rule = Gates::detached},
    {.tokens = 9, .experts = 300, .k = 40, .sequences = 1, .seq_len = 9, .rule = Gates::detached},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .rule = Gates::ones},
    {.tokens = 3, .experts = 5, .k = 0, .sequences = 1, .seq_len = 3, .rule = Gates::detached},
    {.tokens = 1, .experts = 1, .k = 1, .sequences = 1, .seq_len = 1, .scores = Scores::sigmoid},
    {.tokens = 0, .experts = 5, .k = 2, .scores = Scores::sigmoid, .biased = true},
    {.tokens = 20, .experts = 7, .k = 7, .sequences = 4, .seq_len = 5, .scores = Scores::sigmoid, .biased = true},
    {.tokens = 70, .experts = 64, .k = 6, .rule = Gates::renormalized, .scores = Scores::sigmoid, .biased = true},
    {.tokens = 150,
     .experts = 64,
     .k = 8,
     .sequences = 3,
     .seq_len = 100,
     .first = 75,
     .rule = Gates::renormalized,
     .scores = Scores::sigmoid,
     .biased = true},
    {.tokens = 10, .experts = 1000, .k = 8, .sequences = 2, .seq_len = 6, .first = 1, .scores = Scores::sigmoid},
    {.tokens = 9,
     .experts = 300,
     .k = 40,
     .sequences = 1,
     .seq_len = 9,
     .rule = Gates::detached,
     .scores = Scores::sigmoid,
     .biased = true},
    {.tokens = 35, .experts = 7, .k = 3, .sequences = 1, .seq_len = 35, .even = true, .scores = Scores::sigmoid},
    {.tokens = 66, .experts = 12, .k = 3, .sequences = 2, .seq_len = 33, .groups = 4, .group_limit = 2},
    {.tokens = 9, .experts = 5, .k = 2, .groups = 5, .group_limit = 2},  // groups of one expert
    {.tokens = 20, .experts = 128, .k = 4, .sequences = 1, .seq_len = 20, .groups = 64, .group_limit = 3},
    {.tokens = 70,
     .experts = 256,
     .k = 8,
     .sequences = 1,
     .seq_len = 70,
     .rule = Gates::renormalized,
     .scores = Scores::sigmoid,
     .biased = true,
     .groups = 8,
     .group_limit = 4},
    {.tokens = 9, .experts = 300, .k = 8, .groups = 10, .group_limit = 1},
    {.tokens = 9, .experts = 300, .k = 8, .scores = Scores::sigmoid, .biased = true, .groups = 40, .group_limit = 7},
    {.tokens = 66,
     .experts = 12,
     .k = 3,
     .sequences = 2,
     .seq_len = 33,
     .groups = 4,
     .group_limit = 2,
     .group_score = GroupScore::maximum},
    {.tokens = 9, .experts = 300, .k = 8, .groups = 40, .group_limit = 7, .group_score = GroupScore::maximum},
    {.tokens = 70,
     .experts = 256,
     .k = 8,
     .rule = Gates::renormalized,
     .scores = Scores::sigmoid,
     .biased = true,
     .groups = 8,
     .group_limit = 4,
     .group_score = GroupScore::maximum},
    {.tokens = 1, .experts = 1, .k = 1, .sequences = 1, .seq_len = 1, .entropy = true},
    {.tokens = 10, .experts = 33, .k = 2, .sequences = 3, .seq_len = 7, .first = 5, .entropy = true},
    {.tokens = 66,
     .experts = 12,
     .k = 3,
     .sequences = 2,
     .seq_len = 33,
     .groups = 4,
     .group_limit = 2,
     .entropy = true},
    {.tokens = 9, .experts = 300, .k = 4, .sequences = 1, .seq_len = 9, .rule = Gates::renormalized, .entropy = true},
    {.tokens = 9, .experts = 300, .k = 4, .entropy = true},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .scores = Scores::sigmoid, .entropy = true},
    {.tokens = 9, .experts = 300, .k = 4, .sequences = 1, .seq_len = 9, .scores = Scores::sigmoid, .entropy = true},
    {.tokens = 20, .experts = 7, .k = 7, .sequences = 4, .seq_len = 5, .choices = 1},
    {.tokens = 70, .experts = 64, .k = 6, .rule = Gates::renormalized, .choices = 5},
    {.tokens = 9, .experts = 300, .k = 40, .sequences = 1, .seq_len = 9, .rule = Gates::detached, .choices = 33},
    {.tokens = 35, .experts = 7, .k = 3, .sequences = 1, .seq_len = 35, .even = true, .choices = 2, .first_token = 10},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .rule = Gates::ones, .choices = 2},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .scores = Scores::sigmoid, .choices = 3},
    {.tokens = 1, .experts = 2, .k = 1, .sequences = 1, .seq_len = 1, .skip = 1},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .skip = 4},  // chooses the worst three
    {.tokens = 70, .experts = 64, .k = 6, .rule = Gates::renormalized, .choices = 5, .skip = 9},
    {.tokens = 9, .experts = 300, .k = 40, .sequences = 1, .seq_len = 9, .rule = Gates::detached, .skip = 35},
    {.tokens = 20,
     .experts = 7,
     .k = 2,
     .sequences = 4,
     .seq_len = 5,
     .rule = Gates::renormalized,
     .scores = Scores::sigmoid,
     .biased = true,
     .skip = 3},
    {.tokens = 66, .experts = 12, .k = 3, .sequences = 2, .seq_len = 33, .groups = 4, .group_limit = 2, .skip = 3},
    {.tokens = 9,
     .experts = 300,
     .k = 8,
     .scores = Scores::sigmoid,
     .biased = true,
     .groups = 40,
     .group_limit = 7,
     .skip = 40},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .rule = Gates::ones, .skip = 1},
    {.tokens = 1, .experts = 1, .k = 1, .sequences = 1, .seq_len = 1, .scores = Scores::sqrt_softplus},
    {.tokens = 0, .experts = 5, .k = 2, .scores = Scores::sqrt_softplus, .biased = true},
    {.tokens = 150,
     .experts = 64,
     .k = 8,
     .sequences = 3,
     .seq_len = 100,
     .first = 75,
     .rule = Gates::renormalized,
     .scores = Scores::sqrt_softplus,
     .biased = true},
    {.tokens = 10,
     .experts = 1000,
     .k = 8,
     .sequences = 2,
     .seq_len = 6,
     .first = 1,
     .scores = Scores::sqrt_softplus,
     .skip = 3},
    {.tokens = 66,
     .experts = 12,
     .k = 3,
     .sequences = 2,
     .seq_len = 33,
     .scores = Scores::sqrt_softplus,
     .biased = true,
     .groups = 4,
     .group_limit = 2,
     .entropy = true,
     .choices = 2},
    {.tokens = 9,
     .experts = 300,
     .k = 40,
     .sequences = 1,
     .seq_len = 9,
     .rule = Gates::renormalized,
     .even = true,
     .scores = Scores::sqrt_softplus,
     .entropy = true,
     .first_token = 1234567},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .gate_scale = 2.5},
    {.tokens = 20, .experts = 7, .k = 3, .rule = Gates::ones, .gate_scale = 0.5},
    {.tokens = 9, .experts = 300, .k = 40, .rule = Gates::detached, .choices = 33, .gate_scale = 16},
    {.tokens = 70,
     .experts = 64,
     .k = 6,
     .rule = Gates::renormalized,
     .scores = Scores::sigmoid,
     .biased = true,
     .gate_scale = 2.5},
};

/// Returns the bias of a case; empty without one. Its values are large enough to change choices.
template <class A>
std::vector<A> bias_of(const Case& c) {
  return c.biased ? Grid<A>::random(1, c.experts, "bias").values : std::vector<A>();
}

/// Returns the group of each expert; empty without groups. The experts of a group are not adjacent.
inline std::vector<std::int32_t> groups_of(const Case& c) {
  std::vector<std::int32_t> group;
  for (std::int64_t e = 0; e < c.experts && c.groups; ++e) group.push_back(static_cast<std::int32_t>(e * 7 % c.groups));
  return group;
}

/// The results of a RouteTokens. Sums that it adds to do not start at 0.
template <class A>
struct Routed {
  Grid<std::int32_t> index;
  Grid<A> gates, norms;
  Grid<double> load;
  Grid<std::int64_t> counts;
  std::vector<double> probability, entropies;

  explicit Routed(const Case& c)
      : index(c.tokens, c.k, 1),
        gates(c.tokens, c.k, 2),
        norms(c.tokens, 2, 1),
        load(c.sequences, load_width(c.experts), 1),
        counts(Grid<std::int64_t>::zeros(c.sequences ? c.k : 0, c.experts, 1)),
        probability(c.sequences ? static_cast<std::size_t>(c.experts) : 0, 5.0),
        entropies(c.sequences && c.entropy ? 1 : 0, 3.0) {
    for (std::int64_t j = 0; j < counts.rows; ++j) counts(j, 0) = 10;
  }
  void route(const Case& c, const Grid<A>& logits, int threads) {
    const std::vector<A> bias = bias_of<A>(c);
    const std::vector<std::int32_t> group = groups_of(c);
    const std::vector<double> choices = c.stated_choices();
    launch_on(threads, RouteTokens<A>{.logits = logits.matrix(),
                                      .index = index.matrix(),
                                      .gates = gates.matrix(),
                                      .norms = norms.matrix(),
                                      .scores = c.scores,
                                      .rule = c.rule,
                                      .gate_scale = c.gate_scale,
                                      .choices = choices,
                                      .bias = bias,
                                      .group = group,
                                      .groups = c.groups,
                                      .group_limit = c.group_limit,
                                      .group_score = c.group_score,
                                      .skip = c.skip,
                                      .even = c.even,
                                      .first_token = c.first_token,
                                      .entropy = c.entropy,
                                      .seq_len = c.seq_len,
                                      .first = c.first,
                                      .load = load.matrix(),
                                      .counts = counts.matrix(),
                                      .probability = probability,
                                      .entropies = entropies});
  }
};

/// Returns random logits with many ties.
template <class A>
Grid<A> logits_of(const Case& c) {
  auto logits = Grid<A>::random(c.tokens, c.experts, "logits", 3, 2);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t e = 0; e < c.experts; ++e) logits(t, e) = std::round(logits(t, e) * 8) / 8;
  }
  return logits;
}

/// Returns the score of a logit; for softmax, before the division by the sum.
inline double naive_score(Scores scores, double x) {
  if (scores == Scores::softmax) return std::exp(x);
  if (scores == Scores::sigmoid) return 1 / (1 + std::exp(-x));
  return std::sqrt(std::log(1 + std::exp(x)));
}

/// Returns the derivative ds/dx of a sigmoid or sqrt_softplus score.
inline double naive_slope(Scores scores, double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  return scores == Scores::sigmoid ? sigmoid * (1 - sigmoid) : sigmoid / (2 * naive_score(scores, x));
}

/// The scores and probabilities of one token.
struct Naive {
  std::vector<double> scores, probabilities;

  Naive(const Case& c, const Grid<double>& logits, std::int64_t t) {
    double sum = 0;
    for (std::int64_t e = 0; e < logits.cols; ++e) {
      const double x = logits.at(t, e);
      scores.push_back(naive_score(c.scores, x));
      sum += scores.back();
    }
    for (const double score : scores) probabilities.push_back(score / sum);
    if (c.scores == Scores::softmax) scores = probabilities;
  }
  double entropy() const {
    double sum = 0;
    for (const double p : probabilities) sum -= p * std::log(p);
    return sum;
  }
  double log_sum_exp(const Case& c, const Grid<double>& logits, std::int64_t t) const {
    return c.scores == Scores::softmax ? logits.at(t, 0) - std::log(scores[0]) : 0;
  }
};

/// Returns true for each group that token t may choose from. Adds the bias in the kernel's type, like the kernel.
template <class A>
std::vector<bool> naive_groups(const Case& c, const Grid<A>& logits, std::int64_t t, const std::vector<A>& bias) {
  const Naive token(c, logits.widened(), t);
  const std::vector<std::int32_t> group = groups_of(c);
  std::vector<std::vector<double>> scores(static_cast<std::size_t>(c.groups));
  for (std::size_t e = 0; e < group.size(); ++e) {
    scores[static_cast<std::size_t>(group[e])].push_back(token.scores[e] +
                                                         (c.biased ? static_cast<double>(bias[e]) : 0));
  }
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t g = 0; g < scores.size(); ++g) {
    std::sort(scores[g].rbegin(), scores[g].rend());
    const bool two = c.group_score == GroupScore::top2 && scores[g].size() > 1;
    order.emplace_back(-scores[g][0] - (two ? scores[g][1] : 0), g);
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> allowed(scores.size(), c.group_limit == 0);
  for (std::int64_t i = 0; i < c.group_limit; ++i) allowed[order[static_cast<std::size_t>(i)].second] = true;
  return allowed;
}

/// Returns the choices of token t: sorts the experts by descending key with a stable sort and takes the first ones
/// after those that are skipped.
template <class A>
std::vector<std::int32_t> naive_choices(const Case& c, const Grid<A>& logits, std::int64_t t) {
  std::vector<std::int32_t> index(static_cast<std::size_t>(c.experts));
  std::iota(index.begin(), index.end(), 0);
  const std::vector<A> bias = bias_of<A>(c);
  const auto key = [&](std::int32_t e) {
    const double x = logits.at(t, e);
    return c.scores == Scores::softmax
               ? x
               : naive_score(c.scores, x) + (c.biased ? static_cast<double>(bias[static_cast<std::size_t>(e)]) : 0);
  };
  if (c.group_limit > 0) {
    const std::vector<bool> allowed = naive_groups(c, logits, t, bias);
    const std::vector<std::int32_t> group = groups_of(c);
    std::erase_if(
        index, [&](std::int32_t e) { return !allowed[static_cast<std::size_t>(group[static_cast<std::size_t>(e)])]; });
  }
  std::stable_sort(index.begin(), index.end(), [&](std::int32_t a, std::int32_t b) { return key(a) > key(b); });
  index.erase(index.begin(), index.begin() + c.skip);
  index.resize(static_cast<std::size_t>(c.chosen()));
  for (std::int64_t j = 0; j < c.chosen() && c.even; ++j) {
    index[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(((c.first_token + t) * c.chosen() + j) % c.experts);
  }
  return index;
}

/// Returns the gates for the chosen scores. `sum`: a constant that replaces their sum in detached gates.
inline std::vector<double> naive_gates(Gates rule, const std::vector<double>& chosen, std::optional<double> sum = {}) {
  const double all = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  std::vector<double> gates;
  for (const double score : chosen) {
    switch (rule) {
      case Gates::raw: gates.push_back(score); break;
      case Gates::renormalized: gates.push_back(score / all); break;
      case Gates::detached: gates.push_back(score / sum.value_or(all)); break;
      case Gates::ones: gates.push_back(1); break;
    }
  }
  return gates;
}

/// The expected results of a RouteTokens, given the choices of each token. `sums`: for each token, the constant that
/// replaces the sum of the chosen scores in detached gates; may be empty.
struct ExpectedRoutes {
  std::vector<double> index, gates, load, counts, probability;
  double entropies = 3;

  ExpectedRoutes(const Case& c, const Grid<double>& logits, const std::vector<std::vector<std::int32_t>>& chosen,
                 const std::vector<double>& sums = {})
      : load(static_cast<std::size_t>(c.sequences * load_width(c.experts)), 0.0),
        counts(static_cast<std::size_t>(c.sequences ? c.k * c.experts : 0), 0.0),
        probability(c.sequences ? static_cast<std::size_t>(c.experts) : 0, 5.0) {
    for (std::int64_t j = 0; j < c.k && c.sequences; ++j) counts[static_cast<std::size_t>(j * c.experts)] = 10;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const auto at = static_cast<std::size_t>(t);
      add_token(c, t, logits, chosen[at], sums.empty() ? std::optional<double>() : sums[at]);
    }
  }
  void add_token(const Case& c, std::int64_t t, const Grid<double>& logits, const std::vector<std::int32_t>& choices,
                 std::optional<double> sum) {
    const Naive token(c, logits, t);
    std::vector<double> chosen;
    for (const std::int32_t e : choices) {
      index.push_back(e);
      chosen.push_back(token.scores[static_cast<std::size_t>(e)]);
    }
    for (const double gate : naive_gates(c.rule, chosen, sum)) gates.push_back(c.gate_scale * gate);
    for (std::int64_t j = c.chosen(); j < c.k; ++j) {
      index.push_back(-1);
      gates.push_back(0);
    }
    if (c.sequences == 0) return;
    double* of_sequence = load.data() + (c.first + t) / c.seq_len * load_width(c.experts);
    for (std::size_t j = 0; j < choices.size(); ++j) {
      of_sequence[choices[j]] += 1;
      counts[j * static_cast<std::size_t>(c.experts) + static_cast<std::size_t>(choices[j])] += 1;
    }
    for (std::size_t e = 0; e < token.probabilities.size(); ++e) {
      of_sequence[static_cast<std::size_t>(c.experts) + e] += token.probabilities[e];
      probability[e] += token.probabilities[e];
    }
    const double log_sum_exp = token.log_sum_exp(c, logits, t);
    of_sequence[2 * c.experts] += log_sum_exp * log_sum_exp;
    if (!c.entropy) return;
    of_sequence[2 * c.experts + 1] += token.entropy();
    entropies += token.entropy();
  }
};

/// Returns the choices of all tokens.
template <class A>
std::vector<std::vector<std::int32_t>> all_choices(const Case& c, const Grid<A>& logits) {
  std::vector<std::vector<std::int32_t>> all;
  for (std::int64_t t = 0; t < c.tokens; ++t) all.push_back(naive_choices(c, logits, t));
  return all;
}

}  // namespace lyceum::router_problem
