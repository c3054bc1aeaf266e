#include "kernels/router.h"

#include <numeric>
#include <optional>

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
  bool renormalize = false, even = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.tokens << " tokens from " << c.first << " of " << c.sequences << " x " << c.seq_len << ", top " << c.k
             << " of " << c.experts << (c.renormalize ? ", renormalised" : "") << (c.even ? ", even" : "");
}

const std::vector<Case> cases{
    {.tokens = 0, .experts = 5, .k = 2},
    {.tokens = 1, .experts = 1, .k = 1, .sequences = 1, .seq_len = 1},
    {.tokens = 9, .experts = 1, .k = 1, .sequences = 3, .seq_len = 3, .renormalize = true},
    {.tokens = 0, .experts = 7, .k = 3, .sequences = 2, .seq_len = 4, .first = 3},
    {.tokens = 20, .experts = 7, .k = 7, .sequences = 4, .seq_len = 5},
    {.tokens = 10, .experts = 33, .k = 2, .sequences = 3, .seq_len = 7, .first = 5, .renormalize = true},
    {.tokens = 35, .experts = 7, .k = 3, .sequences = 1, .seq_len = 35, .even = true},
    {.tokens = 260, .experts = 64, .k = 6, .sequences = 2, .seq_len = 130},
    {.tokens = 150, .experts = 64, .k = 8, .sequences = 3, .seq_len = 100, .first = 75, .renormalize = true},
    {.tokens = 70, .experts = 64, .k = 6, .renormalize = true},
    {.tokens = 66, .experts = 160, .k = 6, .sequences = 1, .seq_len = 66},
    {.tokens = 9, .experts = 160, .k = 160, .sequences = 3, .seq_len = 3, .renormalize = true},
    {.tokens = 70, .experts = 257, .k = 8, .sequences = 1, .seq_len = 70, .renormalize = true, .even = true},
    {.tokens = 10, .experts = 1000, .k = 8, .sequences = 2, .seq_len = 6, .first = 1},
    {.tokens = 3, .experts = 257, .k = 257, .sequences = 1, .seq_len = 3, .renormalize = true},
    {.tokens = 3, .experts = 5, .k = 0, .sequences = 1, .seq_len = 3},
};

/// All that a forward pass writes.
template <class A>
struct Routed {
  Grid<std::int32_t> index;
  Grid<A> gates, norms;
  Grid<double> load;
  Grid<std::int64_t> counts;
  std::vector<double> probability;

  explicit Routed(const Case& c)
      : index(c.tokens, c.k, 1),
        gates(c.tokens, c.k, 2),
        norms(c.tokens, 2, 1),
        load(c.sequences, load_width(c.experts), 1),
        counts(Grid<std::int64_t>::zeros(c.sequences ? c.k : 0, c.experts, 1)),
        probability(c.sequences ? static_cast<std::size_t>(c.experts) : 0, 5.0) {
    for (std::int64_t j = 0; j < counts.rows; ++j) counts(j, 0) = 10;
  }
  void route(const Case& c, const Grid<A>& logits, int threads) {
    launch_on(threads, RouteTokens<A>{.logits = logits.matrix(),
                                      .index = index.matrix(),
                                      .gates = gates.matrix(),
                                      .norms = norms.matrix(),
                                      .renormalize = c.renormalize,
                                      .even = c.even,
                                      .seq_len = c.seq_len,
                                      .first = c.first,
                                      .load = load.matrix(),
                                      .counts = counts.matrix(),
                                      .probability = probability});
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

std::vector<double> naive_scores(const Grid<double>& logits, std::int64_t t) {
  double sum = 0;
  std::vector<double> scores;
  for (std::int64_t e = 0; e < logits.cols; ++e) sum += std::exp(logits.at(t, e));
  for (std::int64_t e = 0; e < logits.cols; ++e) scores.push_back(std::exp(logits.at(t, e)) / sum);
  return scores;
}

/// The first k of all experts in a stable sort by falling logit.
std::vector<std::int32_t> naive_choices(const Case& c, const Grid<double>& logits, std::int64_t t) {
  std::vector<std::int32_t> index(static_cast<std::size_t>(c.experts));
  std::iota(index.begin(), index.end(), 0);
  std::stable_sort(index.begin(), index.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits.at(t, a) > logits.at(t, b); });
  index.resize(static_cast<std::size_t>(c.k));
  for (std::int64_t j = 0; j < c.k && c.even; ++j) {
    index[static_cast<std::size_t>(j)] = static_cast<std::int32_t>((t * c.k + j) % c.experts);
  }
  return index;
}

/// The same by the formulas, in double: what `chosen` holds of choices, or the naive ones.
struct ExpectedRoutes {
  std::vector<double> index, gates, load, counts, probability;

  ExpectedRoutes(const Case& c, const Grid<double>& logits,
                 const std::vector<std::vector<std::int32_t>>* chosen = nullptr)
      : load(static_cast<std::size_t>(c.sequences * load_width(c.experts)), 0.0),
        counts(static_cast<std::size_t>(c.sequences ? c.k * c.experts : 0), 0.0),
        probability(c.sequences ? static_cast<std::size_t>(c.experts) : 0, 5.0) {
    for (std::int64_t j = 0; j < c.k && c.sequences; ++j) counts[static_cast<std::size_t>(j * c.experts)] = 10;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const std::vector<double> scores = naive_scores(logits, t);
      add_token(c, t, logits, scores, chosen ? (*chosen)[static_cast<std::size_t>(t)] : naive_choices(c, logits, t));
    }
  }
  void add_token(const Case& c, std::int64_t t, const Grid<double>& logits, const std::vector<double>& scores,
                 const std::vector<std::int32_t>& choices) {
    double sum = 0;
    for (const std::int32_t e : choices) sum += scores[static_cast<std::size_t>(e)];
    for (const std::int32_t e : choices) {
      index.push_back(e);
      gates.push_back(scores[static_cast<std::size_t>(e)] / (c.renormalize ? sum : 1));
    }
    if (c.sequences == 0) return;
    double* of_sequence = load.data() + (c.first + t) / c.seq_len * load_width(c.experts);
    for (std::size_t j = 0; j < choices.size(); ++j) {
      of_sequence[choices[j]] += 1;
      counts[j * static_cast<std::size_t>(c.experts) + static_cast<std::size_t>(choices[j])] += 1;
    }
    for (std::size_t e = 0; e < scores.size(); ++e) {
      of_sequence[static_cast<std::size_t>(c.experts) + e] += scores[e];
      probability[e] += scores[e];
    }
    const double log_sum_exp = logits.at(t, 0) - std::log(scores[0]);
    of_sequence[2 * c.experts] += log_sum_exp * log_sum_exp;
  }
};

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
    const ExpectedRoutes expected(c, logits.widened());
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
    const auto d_gates = Grid<A>::random(c.tokens, c.k, "d_gates", 1);
    auto d_load = Grid<double>::random(c.sequences, load_width(c.experts), "d_load", 2);
    const auto gradient = [&](int threads, bool gates, bool load) {
      Grid<A> d_logits(c.tokens, c.experts, 1);
      launch_on(threads, RouteTokensBackward<A>{.logits = logits.matrix(),
                                                .norms = routed.norms.matrix(),
                                                .index = routed.index.matrix(),
                                                .d_gates = gates ? d_gates.matrix() : Matrix<const A>{},
                                                .d_load = load ? d_load.matrix() : Matrix<double>{},
                                                .renormalize = c.renormalize,
                                                .seq_len = c.seq_len,
                                                .first = c.first,
                                                .d_logits = d_logits.matrix()});
      EXPECT_TRUE(d_logits.gaps_untouched());
      return d_logits;
    };
    const Grid<A> both = gradient(1, true, true);
    EXPECT_TRUE(both.same_bits(gradient(2, true, true)));
    // By the formulas: s_i (ds_i − Σ ds · s) + 2 lse · d_square · s_i, the gates' share through their quotient.
    std::vector<double> by_gates, by_load, by_both;
    const Grid<double> wide = logits.widened();
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const std::vector<double> s = naive_scores(wide, t);
      std::vector<double> ds_gates(s.size(), 0.0), ds_load(s.size(), 0.0);
      double sum = 0, weighted = 0, square = 0;
      for (std::int64_t j = 0; j < c.k; ++j) {
        const double chosen = s[static_cast<std::size_t>(routed.index(t, j))];
        sum += chosen;
        weighted += chosen * d_gates.at(t, j);
      }
      for (std::int64_t j = 0; j < c.k; ++j) {
        ds_gates[static_cast<std::size_t>(routed.index(t, j))] =
            c.renormalize ? d_gates.at(t, j) / sum - weighted / (sum * sum) : d_gates.at(t, j);
      }
      const std::int64_t sequence = (c.first + t) / c.seq_len;
      for (std::size_t e = 0; e < s.size() && c.sequences; ++e) {
        ds_load[e] = d_load.at(sequence, c.experts + static_cast<std::int64_t>(e));
      }
      if (c.sequences) square = d_load.at(sequence, 2 * c.experts);
      const double by_square = 2 * (wide.at(t, 0) - std::log(s[0])) * square;
      const double dot_gates = weighted_sum(ds_gates, s), dot_load = weighted_sum(ds_load, s);
      for (std::size_t e = 0; e < s.size(); ++e) {
        by_gates.push_back(s[e] * (ds_gates[e] - dot_gates));
        by_load.push_back(s[e] * (ds_load[e] - dot_load + by_square));
        by_both.push_back(by_gates.back() + by_load.back());
      }
    }
    const double tolerance = c.experts == 1 ? 1 : 40 * tolerance_of<A>;  // of one expert, rounding alone is left
    if (c.experts > 1) {
      expect_close(both, by_both, tolerance);
      expect_close(gradient(1, true, false), by_gates, tolerance);
    }
    if (c.sequences) expect_close(gradient(1, false, true), by_load, tolerance);
  }
}

TEST(Router, BackwardByFiniteDifferences) {
  for (const Case& c : {Case{.tokens = 5, .experts = 6, .k = 2, .sequences = 3, .seq_len = 3, .first = 2},
                        Case{.tokens = 3, .experts = 40, .k = 3, .sequences = 1, .seq_len = 3, .renormalize = true}}) {
    const auto logits = Grid<double>::random(c.tokens, c.experts, "x");
    Routed<double> routed(c);
    routed.route(c, logits, 1);
    std::vector<std::vector<std::int32_t>> chosen;
    for (std::int64_t t = 0; t < c.tokens; ++t) chosen.push_back(naive_choices(c, logits, t));
    const auto d_gates = Grid<double>::random(c.tokens, c.k, "d_gates");
    auto d_load = Grid<double>::random(c.sequences, load_width(c.experts), "d_load");
    Grid<double> d_logits(c.tokens, c.experts);
    launch_on(1, RouteTokensBackward<double>{.logits = logits.matrix(),
                                             .norms = routed.norms.matrix(),
                                             .index = routed.index.matrix(),
                                             .d_gates = d_gates.matrix(),
                                             .d_load = d_load.matrix(),
                                             .renormalize = c.renormalize,
                                             .seq_len = c.seq_len,
                                             .first = c.first,
                                             .d_logits = d_logits.matrix()});
    const auto value = [&](const std::vector<double>& x) {
      const ExpectedRoutes at(c, Grid<double>::from(c.tokens, c.experts, x), &chosen);
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
