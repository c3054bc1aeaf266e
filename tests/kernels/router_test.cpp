#include "kernels/router.h"

#include <numeric>
#include <optional>
#include <tuple>

#include "kernels/router_chunks.h"
#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

/// The tokens of a pass.
struct Case {
  std::int64_t tokens, experts, k;
  std::int64_t sequences = 0, seq_len = 1, first = 0;  // no sequences: no load
  Gates rule = Gates::raw;
  bool even = false;
  Scores scores = Scores::softmax;
  bool biased = false;
  std::int64_t groups = 0, group_limit = 0;
  bool entropy = false;
  std::int64_t choices = 0;  // that a token makes; 0: k
  std::int64_t skip = 0;

  std::int64_t chosen() const { return choices ? choices : k; }
  std::vector<double> choices_told() const {
    return std::vector<double>(choices ? 1 : 0, static_cast<double>(choices));
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.tokens << " tokens from " << c.first << " of " << c.sequences << " x " << c.seq_len << ", top " << c.k
             << " of " << c.experts << ", gates " << static_cast<int>(c.rule) << (c.even ? ", even" : "") << ", scores "
             << static_cast<int>(c.scores) << (c.biased ? ", biased" : "") << ", " << c.group_limit << " groups of "
             << c.groups << ", " << c.chosen() << " chosen behind " << c.skip << (c.entropy ? ", entropies" : "");
}

const std::vector<Case> cases{
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
    {.tokens = 35, .experts = 7, .k = 3, .sequences = 1, .seq_len = 35, .even = true, .choices = 2},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .rule = Gates::ones, .choices = 2},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .scores = Scores::sigmoid, .choices = 3},
    {.tokens = 1, .experts = 2, .k = 1, .sequences = 1, .seq_len = 1, .skip = 1},
    {.tokens = 20, .experts = 7, .k = 3, .sequences = 4, .seq_len = 5, .skip = 4},  // the worst ones
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
     .entropy = true},
};

/// What is added to scores where they are compared, wide enough to change choices.
template <class A>
std::vector<A> bias_of(const Case& c) {
  return c.biased ? Grid<A>::random(1, c.experts, "bias").values : std::vector<A>();
}

/// Experts of one group are no neighbours.
std::vector<std::int32_t> groups_of(const Case& c) {
  std::vector<std::int32_t> group;
  for (std::int64_t e = 0; e < c.experts && c.groups; ++e) group.push_back(static_cast<std::int32_t>(e * 7 % c.groups));
  return group;
}

/// All that a forward pass writes.
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
    const std::vector<double> choices = c.choices_told();
    launch_on(threads, RouteTokens<A>{.logits = logits.matrix(),
                                      .index = index.matrix(),
                                      .gates = gates.matrix(),
                                      .norms = norms.matrix(),
                                      .scores = c.scores,
                                      .rule = c.rule,
                                      .choices = choices,
                                      .bias = bias,
                                      .group = group,
                                      .groups = c.groups,
                                      .group_limit = c.group_limit,
                                      .skip = c.skip,
                                      .even = c.even,
                                      .entropy = c.entropy,
                                      .seq_len = c.seq_len,
                                      .first = c.first,
                                      .load = load.matrix(),
                                      .counts = counts.matrix(),
                                      .probability = probability,
                                      .entropies = entropies});
  }
};

/// Logits with many ties.
template <class A>
Grid<A> logits_of(const Case& c) {
  auto logits = Grid<A>::random(c.tokens, c.experts, "logits", 3, 2);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t e = 0; e < c.experts; ++e) logits(t, e) = std::round(logits(t, e) * 8) / 8;
  }
  return logits;
}

/// The score of a logit, before those of softmax are divided by their sum.
double naive_score(Scores scores, double x) {
  return scores == Scores::softmax   ? std::exp(x)
         : scores == Scores::sigmoid ? 1 / (1 + std::exp(-x))
                                     : std::sqrt(std::log(1 + std::exp(x)));
}

/// ds/dx of one that is no softmax.
double naive_slope(Scores scores, double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  return scores == Scores::sigmoid ? sigmoid * (1 - sigmoid) : sigmoid / (2 * naive_score(scores, x));
}

/// Scores of a token, and its probabilities.
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

/// The groups that a token chooses, by the scores (+ bias) in the kernel's type.
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
    order.emplace_back(-scores[g][0] - (scores[g].size() > 1 ? scores[g][1] : 0), g);
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> open(scores.size(), c.group_limit == 0);
  for (std::int64_t i = 0; i < c.group_limit; ++i) open[order[static_cast<std::size_t>(i)].second] = true;
  return open;
}

/// The first k behind those skipped of all experts in a stable sort by what is compared, falling.
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
    const std::vector<bool> open = naive_groups(c, logits, t, bias);
    const std::vector<std::int32_t> group = groups_of(c);
    std::erase_if(index,
                  [&](std::int32_t e) { return !open[static_cast<std::size_t>(group[static_cast<std::size_t>(e)])]; });
  }
  std::stable_sort(index.begin(), index.end(), [&](std::int32_t a, std::int32_t b) { return key(a) > key(b); });
  index.erase(index.begin(), index.begin() + c.skip);
  index.resize(static_cast<std::size_t>(c.chosen()));
  for (std::int64_t j = 0; j < c.chosen() && c.even; ++j) {
    index[static_cast<std::size_t>(j)] = static_cast<std::int32_t>((t * c.chosen() + j) % c.experts);
  }
  return index;
}

/// The gates of chosen scores by the formulas; `sum`: of them, where it is a constant.
std::vector<double> naive_gates(Gates rule, const std::vector<double>& chosen, std::optional<double> sum = {}) {
  const double all = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  std::vector<double> gates;
  for (const double score : chosen) {
    gates.push_back(rule == Gates::raw            ? score
                    : rule == Gates::renormalized ? score / all
                    : rule == Gates::detached     ? score / sum.value_or(all)
                                                  : 1);
  }
  return gates;
}

/// The same by the formulas, in double, of the choices made. `sums`: of the chosen scores, where they are constants.
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
    for (const double gate : naive_gates(c.rule, chosen, sum)) gates.push_back(gate);
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

template <class A>
std::vector<std::vector<std::int32_t>> all_choices(const Case& c, const Grid<A>& logits) {
  std::vector<std::vector<std::int32_t>> all;
  for (std::int64_t t = 0; t < c.tokens; ++t) all.push_back(naive_choices(c, logits, t));
  return all;
}

template <class A>
class RouterTest : public testing::Test {};
using ScoreTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(RouterTest, ScoreTypes);

TYPED_TEST(RouterTest, FollowsTheFormulasWhateverTheSizes) {
  using A = TypeParam;
  for (const Case& c : cases) {
    SCOPED_TRACE(c);
    const Grid<A> logits = logits_of<A>(c);
    Routed<A> one(c), two(c);
    one.route(c, logits, 1);
    two.route(c, logits, 2);
    const ExpectedRoutes expected(c, logits.widened(), all_choices(c, logits));
    EXPECT_EQ(one.index.flat(), expected.index);
    expect_close(one.gates, expected.gates, 4 * tolerance_of<A>);
    expect_close(one.load, expected.load, 4 * tolerance_of<A>);
    EXPECT_EQ(one.counts.flat(), expected.counts);
    for (std::size_t e = 0; e < expected.probability.size(); ++e) {
      EXPECT_NEAR(one.probability[e], expected.probability[e], 4 * tolerance_of<A> * expected.probability[e]);
    }
    EXPECT_TRUE(one.index.gaps_untouched() && one.norms.gaps_untouched() && one.counts.gaps_untouched());
    EXPECT_TRUE(one.index.same_bits(two.index) && one.gates.same_bits(two.gates) && one.norms.same_bits(two.norms));
    EXPECT_TRUE(one.load.same_bits(two.load) && one.counts.same_bits(two.counts));
    EXPECT_EQ(one.probability, two.probability);
    for (const double sum : one.entropies) {
      EXPECT_NEAR(sum, expected.entropies, 4 * tolerance_of<A> * expected.entropies);
    }
    EXPECT_EQ(one.entropies, two.entropies);
  }
}

TYPED_TEST(RouterTest, BackwardIsTheDerivativeOfGatesScoresAndSquares) {
  using A = TypeParam;
  for (const Case& c : cases) {
    if (c.tokens * c.experts > 3000 && std::is_same_v<A, double>) continue;
    SCOPED_TRACE(c);
    const Grid<A> logits = logits_of<A>(c);
    Routed<A> routed(c);
    routed.route(c, logits, 1);
    const std::vector<double> choices = c.choices_told();
    const auto d_gates = Grid<A>::random(c.tokens, c.k, "d_gates", 1);
    auto d_load = Grid<double>::random(c.sequences, load_width(c.experts), "d_load", 2);
    const auto gradient = [&](int threads, bool gates, bool load) {
      Grid<A> d_logits(c.tokens, c.experts, 1);
      launch_on(threads, RouteTokensBackward<A>{.logits = logits.matrix(),
                                                .norms = routed.norms.matrix(),
                                                .index = routed.index.matrix(),
                                                .d_gates = gates ? d_gates.matrix() : Matrix<const A>{},
                                                .d_load = load ? d_load.matrix() : Matrix<double>{},
                                                .scores = c.scores,
                                                .rule = c.rule,
                                                .choices = choices,
                                                .entropy = c.entropy,
                                                .seq_len = c.seq_len,
                                                .first = c.first,
                                                .d_logits = d_logits.matrix()});
      EXPECT_TRUE(d_logits.gaps_untouched());
      return d_logits;
    };
    const Grid<A> both = gradient(1, true, true);
    EXPECT_TRUE(both.same_bits(gradient(2, true, true)));
    // By the formulas: from what gates and loads ask of scores and probabilities to the logits.
    std::vector<double> by_gates, by_load, by_both;
    const Grid<double> wide = logits.widened();
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const Naive token(c, wide, t);
      const std::vector<double>&s = token.scores, &p = token.probabilities;
      std::vector<double> ds(s.size(), 0.0), dp(s.size(), 0.0);
      double sum = 0, weighted = 0, square = 0;
      for (std::int64_t j = 0; j < c.chosen(); ++j) {
        const double chosen = s[static_cast<std::size_t>(routed.index(t, j))];
        sum += chosen;
        weighted += chosen * d_gates.at(t, j);
      }
      for (std::int64_t j = 0; j < c.chosen(); ++j) {
        const double dg = d_gates.at(t, j);
        ds[static_cast<std::size_t>(routed.index(t, j))] = c.rule == Gates::raw ? dg
                                                           : c.rule == Gates::renormalized
                                                               ? dg / sum - weighted / (sum * sum)
                                                           : c.rule == Gates::detached ? dg / sum
                                                                                       : 0;
      }
      const std::int64_t sequence = (c.first + t) / c.seq_len;
      for (std::size_t e = 0; e < s.size() && c.sequences; ++e) {
        dp[e] = d_load.at(sequence, c.experts + static_cast<std::int64_t>(e));
      }
      if (c.sequences) square = d_load.at(sequence, 2 * c.experts);
      if (c.sequences && c.entropy) {
        for (std::size_t e = 0; e < s.size(); ++e) dp[e] -= d_load.at(sequence, 2 * c.experts + 1) * std::log(p[e]);
      }
      const double by_square = 2 * token.log_sum_exp(c, wide, t) * square;
      const double dot_gates = weighted_sum(ds, s), dot_load = weighted_sum(dp, p);
      for (std::size_t e = 0; e < s.size(); ++e) {
        if (c.scores == Scores::softmax) {
          by_gates.push_back(s[e] * (ds[e] - dot_gates));
          by_load.push_back(s[e] * (dp[e] - dot_load + by_square));
        } else {
          const double slope = naive_slope(c.scores, wide.at(t, static_cast<std::int64_t>(e)));
          by_gates.push_back(slope * ds[e]);
          by_load.push_back(slope / s[e] * p[e] * (dp[e] - dot_load));
        }
        by_both.push_back(by_gates.back() + by_load.back());
      }
    }
    const double tolerance = c.experts == 1 ? 1 : 40 * tolerance_of<A>;  // of one expert, rounding alone is left
    if (c.experts > 1) {
      expect_close(both, by_both, tolerance);
      expect_close(gradient(1, true, false), by_gates, tolerance);
    }
    const bool asked = c.sequences && (c.experts > 1 || c.scores == Scores::softmax);
    if (asked) expect_close(gradient(1, false, true), by_load, tolerance);
  }
}

TEST(Router, BackwardByFiniteDifferences) {
  std::vector<Case> all;
  for (const Gates rule : {Gates::raw, Gates::renormalized, Gates::detached, Gates::ones}) {
    for (const Scores scores : {Scores::softmax, Scores::sigmoid, Scores::sqrt_softplus}) {
      const Case few{.tokens = 5, .experts = 6, .k = 2, .sequences = 3, .seq_len = 3, .first = 2, .rule = rule};
      const Case many{.tokens = 3, .experts = 40, .k = 3, .sequences = 1, .seq_len = 3, .rule = rule};
      for (Case c : {few, many}) {
        c.scores = scores;
        c.biased = scores != Scores::softmax;
        all.push_back(c);
        c.entropy = true;
        c.choices = 1;
        all.push_back(c);
      }
    }
  }
  for (const Case& c : all) {
    SCOPED_TRACE(c);
    const auto logits = Grid<double>::random(c.tokens, c.experts, "x");
    Routed<double> routed(c);
    routed.route(c, logits, 1);
    const std::vector<std::vector<std::int32_t>> chosen = all_choices(c, logits);
    std::vector<double> sums;  // of detached gates
    for (std::size_t t = 0; t < chosen.size() && c.rule == Gates::detached; ++t) {
      const Naive token(c, logits, static_cast<std::int64_t>(t));
      sums.push_back(0);
      for (const std::int32_t e : chosen[t]) sums.back() += token.scores[static_cast<std::size_t>(e)];
    }
    const std::vector<double> choices = c.choices_told();
    const auto d_gates = Grid<double>::random(c.tokens, c.k, "d_gates");
    auto d_load = Grid<double>::random(c.sequences, load_width(c.experts), "d_load");
    Grid<double> d_logits(c.tokens, c.experts);
    launch_on(1, RouteTokensBackward<double>{.logits = logits.matrix(),
                                             .norms = routed.norms.matrix(),
                                             .index = routed.index.matrix(),
                                             .d_gates = d_gates.matrix(),
                                             .d_load = d_load.matrix(),
                                             .scores = c.scores,
                                             .rule = c.rule,
                                             .choices = choices,
                                             .entropy = c.entropy,
                                             .seq_len = c.seq_len,
                                             .first = c.first,
                                             .d_logits = d_logits.matrix()});
    const auto value = [&](const std::vector<double>& x) {
      const ExpectedRoutes at(c, Grid<double>::from(c.tokens, c.experts, x), chosen, sums);
      return weighted_sum(at.gates, d_gates.flat()) + weighted_sum(at.load, d_load.flat());
    };
    expect_gradient(value, logits.flat(), d_logits.flat());
  }
}

TYPED_TEST(RouterTest, NeverPrefersNan) {
  using A = TypeParam;
  const A nan = poison<A>(), low = -std::numeric_limits<A>::infinity(), large = A(1e30), zero = A(-0.0);
  const Case c{.tokens = 6, .experts = 4, .k = 3, .sequences = 1, .seq_len = 6};
  Grid<A> logits(6, 4);
  logits.values = {nan,    nan,   nan,    nan,   nan,  low,  nan,  A(1), low, low,  low, low,
                   -large, large, -large, large, A(0), zero, A(0), zero, low, A(1), low, -low};
  for (const std::int64_t gap : {0, 300}) {  // the same among many experts, the others of which nobody chooses
    const std::int64_t experts = 4 + gap;
    Grid<A> wide(6, experts);
    for (std::int64_t t = 0; t < 6; ++t) {
      for (std::int64_t e = 0; e < experts; ++e) wide(t, e) = e < 4 ? logits(t, e) : nan;
    }
    Case with_gap = c;
    with_gap.experts = experts;
    Routed<A> routed(with_gap);
    routed.route(with_gap, wide, 1);
    EXPECT_EQ(routed.index.flat(), (std::vector<double>{0, 1, 2, 3, 1, 0, 0, 1, 2, 1, 3, 0, 0, 1, 2, 3, 1, 0}));
    if (gap) continue;
    for (const std::int64_t t : {0, 1, 2, 5}) EXPECT_TRUE(is_nan(routed.gates.at(t, 0)));
    EXPECT_EQ(routed.gates.at(3, 0), 0.5);
    EXPECT_EQ(routed.gates.at(3, 2), 0);
    EXPECT_NEAR(routed.gates.at(4, 2), 0.25, 1e-6);
    EXPECT_TRUE(is_nan(routed.load.at(0, 4)) && is_nan(routed.load.at(0, 8)));
    EXPECT_TRUE(is_nan(routed.probability[0]));
    EXPECT_EQ(routed.counts.flat(), (std::vector<double>{13, 1, 0, 2, 10, 5, 0, 1, 13, 0, 3, 0}));
  }
}

/// Scores of logits so low are zeros where they are no softmax, by which gates and probabilities would be divided.
TYPED_TEST(RouterTest, LowLogitsGiveEvenGates) {
  using A = TypeParam;
  const A none = -std::numeric_limits<A>::infinity();
  for (const auto& [experts, rule, scores] : {std::tuple{5, Gates::raw, Scores::sigmoid},
                                              {5, Gates::renormalized, Scores::sigmoid},
                                              {300, Gates::raw, Scores::sigmoid},
                                              {300, Gates::renormalized, Scores::sigmoid},
                                              {5, Gates::raw, Scores::sqrt_softplus},
                                              {300, Gates::renormalized, Scores::sqrt_softplus}}) {
    const Case c{.tokens = 3,
                 .experts = experts,
                 .k = 2,
                 .sequences = 1,
                 .seq_len = 3,
                 .rule = rule,
                 .scores = scores,
                 .entropy = true};
    Grid<A> logits(c.tokens, experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      logits(0, e) = none;
      logits(1, e) = A(-100 - e);
      logits(2, e) = A(e == 1 ? 3 : -1e30);
    }
    Routed<A> routed(c);
    routed.route(c, logits, 1);
    EXPECT_EQ(routed.index.flat(), (std::vector<double>{0, 1, 0, 1, 1, 0}));
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::int64_t j = 0; j < c.k; ++j) {
        EXPECT_NEAR(routed.gates.at(t, j), rule == Gates::raw ? 0 : 0.5, 1e-6);
      }
    }
    const double even = 1 / static_cast<double>(experts);
    EXPECT_NEAR(routed.load.at(0, experts), 2 * even, 1e-5);
    EXPECT_NEAR(routed.load.at(0, experts + 1), 1 + 2 * even, 1e-5);
    EXPECT_NEAR(routed.load.at(0, 2 * experts + 1), 2 * std::log(static_cast<double>(experts)), 1e-4);
    const auto d_gates = Grid<A>::random(c.tokens, c.k, "d_gates");
    auto d_load = Grid<double>::random(1, load_width(experts), "d_load");
    Grid<A> d_logits(c.tokens, experts);
    launch_on(1, RouteTokensBackward<A>{.logits = logits.matrix(),
                                        .norms = routed.norms.matrix(),
                                        .index = routed.index.matrix(),
                                        .d_gates = d_gates.matrix(),
                                        .d_load = d_load.matrix(),
                                        .scores = c.scores,
                                        .rule = rule,
                                        .entropy = true,
                                        .seq_len = c.seq_len,
                                        .d_logits = d_logits.matrix()});
    for (const double d : d_logits.flat()) EXPECT_TRUE(std::abs(d) < 100) << d;
  }
}

TEST(Router, RefusesWhatDoesNotFit) {
  const auto refuses = [](const Case& c, const Case& of_results) {
    const auto logits = Grid<float>::random(c.tokens, c.experts, "logits");
    Routed<float> routed(of_results);
    EXPECT_THROW(routed.route(of_results, logits, 1), Error);
  };
  const Case fits{.tokens = 4, .experts = 3, .k = 2, .sequences = 2, .seq_len = 2};
  Case other = fits;
  other.k = 4;  // more than there are
  refuses(fits, other);
  other = fits;
  other.tokens = 3;
  refuses(fits, other);
  other = fits;
  other.first = 1;  // beyond the last sequence
  refuses(fits, other);
  other = fits;
  other.experts = 4;
  refuses(fits, other);
  other = fits;
  other.biased = true;  // of softmax scores
  refuses(fits, other);
  other = fits;
  other.groups = 2;
  other.group_limit = 3;
  refuses(fits, other);
  other = fits;
  other.skip = 2;  // one is left
  refuses(fits, other);
}

/// splitmix64(token + layer · 2³²) mod experts.
TYPED_TEST(RouterTest, HashedTokensAlwaysGoToTheSameExperts) {
  using A = TypeParam;
  EXPECT_EQ(hashed_expert(0, 0, 1000), 0xe220a8397b1dcdafull % 1000);
  EXPECT_EQ(hashed_expert(5, 3, 7), splitmix64(5 + (std::uint64_t{3} << 32)) % 7);
  for (const std::int64_t tokens : {0, 1, 300}) {
    const std::int64_t experts = 9, layer = 2;
    std::vector<std::int32_t> words, index(static_cast<std::size_t>(tokens), -1);
    for (std::int64_t t = 0; t < tokens; ++t) words.push_back(static_cast<std::int32_t>(t * t % 37));
    std::vector<A> gates(index.size(), poison<A>());
    std::vector<std::int64_t> counts(9, 100), expected_counts = counts;
    std::vector<double> probability(9, 0.5), expected = probability;
    launch_on(1, HashTokens<A>{words, layer, experts, index, gates, counts, probability});
    for (std::size_t t = 0; t < index.size(); ++t) {
      const auto expert = static_cast<std::size_t>(splitmix64(words[t] + (std::uint64_t{2} << 32)) % 9);
      EXPECT_EQ(index[t], static_cast<std::int32_t>(expert));
      EXPECT_EQ(gates[t], A{1});
      ++expected_counts[expert];
      ++expected[expert];
    }
    EXPECT_EQ(counts, expected_counts);
    EXPECT_EQ(probability, expected);
    launch_on(1, HashTokens<A>{words, layer, experts, index, gates, {}, {}});
  }
  std::vector<std::int32_t> words(2), index(1);
  std::vector<A> gates(2);
  EXPECT_THROW(launch_on(1, HashTokens<A>{words, 0, 3, index, gates, {}, {}}), Error);
}

TYPED_TEST(RouterTest, BiasMovesTowardsEvenCounts) {
  using A = TypeParam;
  for (const std::int64_t experts : {1, 5, 300}) {
    auto counts = Grid<std::int64_t>::zeros(2, experts, 1);
    for (std::int64_t e = 0; e < experts; ++e) {
      counts(0, e) = e % 5;
      counts(1, e) = e % 3 == 1 ? 2 : 0;
    }
    std::int64_t sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += counts(0, e) + counts(1, e);
    StepVerdict verdict{};
    std::vector<A> bias(static_cast<std::size_t>(experts), A(0.5)), expected;
    for (std::int64_t e = 0; e < experts; ++e) {
      const double own = static_cast<double>(counts(0, e) + counts(1, e)),
                   mean = static_cast<double>(sum) / static_cast<double>(experts);
      expected.push_back(A(own == mean ? 0.5 : own < mean ? 0.75 : 0.25));
    }
    launch_on(1, BalanceBias<A>{counts.matrix(), bias, 0.25, {&verdict, 1}});
    EXPECT_EQ(bias, expected);
    verdict.skip = 1;
    launch_on(1, BalanceBias<A>{counts.matrix(), bias, 0.25, {&verdict, 1}});
    EXPECT_EQ(bias, expected);
  }
}

/// Each token in one piece, that of its sequence; no piece of more than RouterChunks::rows.
TEST(RouterChunks, CoverTheRunOnce) {
  for (const std::int64_t seq_len : {1, 7, 63, 64, 65, 200}) {
    for (const auto& [first, tokens] : {std::pair<std::int64_t, std::int64_t>{0, 600}, {5, 0}, {64, 100}, {199, 401}}) {
      const RouterChunks chunks{tokens, seq_len, first, (600 + seq_len - 1) / seq_len};
      std::int64_t next = 0;
      for (std::int64_t c = 0; c < chunks.count(); ++c) {
        ASSERT_LE(chunks.end(c) - chunks.begin(c), RouterChunks::rows);
        if (chunks.begin(c) == chunks.end(c)) continue;
        ASSERT_EQ(chunks.begin(c), next);
        next = chunks.end(c);
        EXPECT_EQ((first + chunks.begin(c)) / seq_len, c / chunks.of_sequence());
        EXPECT_EQ((first + chunks.end(c) - 1) / seq_len, c / chunks.of_sequence());
      }
      EXPECT_EQ(next, tokens);
    }
  }
}

TEST(SumColumns, AddsToWhatIsThere) {
  for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {200, 70}}) {
    const auto x = Grid<double>::random(rows, cols, "x", 1);
    std::vector<double> sums(static_cast<std::size_t>(cols), 5);
    launch_on(1, SumColumns{x.matrix(), sums});
    for (std::int64_t c = 0; c < cols; ++c) {
      double expected = 5;
      for (std::int64_t r = 0; r < rows; ++r) expected += x.at(r, c);
      EXPECT_NEAR(sums[static_cast<std::size_t>(c)], expected, 1e-10);
    }
  }
}

}  // namespace
}  // namespace lyceum
