#include "kernels/router_backward.h"

#include "kernels/router_problem.h"
#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using namespace router_problem;

template <class A>
class RouterBackwardTest : public testing::Test {};
using ScoreTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(RouterBackwardTest, ScoreTypes);

TYPED_TEST(RouterBackwardTest, IsTheDerivativeOfGatesScoresAndSquares) {
  using A = TypeParam;
  for (const Case& c : cases) {
    if (c.tokens * c.experts > 3000 && std::is_same_v<A, double>) continue;
    SCOPED_TRACE(c);
    const Grid<A> logits = logits_of<A>(c);
    Routed<A> routed(c);
    routed.route(c, logits, 1);
    const std::vector<double> choices = c.stated_choices();
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
                                                .gate_scale = c.gate_scale,
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
    // Expected gradients of logits by the formulas: through the gates, through the load, and through both.
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
        weighted += chosen * c.gate_scale * d_gates.at(t, j);
      }
      for (std::int64_t j = 0; j < c.chosen(); ++j) {
        const double dg = c.gate_scale * d_gates.at(t, j);
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
    const double tolerance = c.experts == 1 ? 1 : 40 * tolerance_of<A>;  // one expert: only rounding errors remain
    if (c.experts > 1) {
      expect_close(both, by_both, tolerance);
      expect_close(gradient(1, true, false), by_gates, tolerance);
    }
    const bool asked = c.sequences && (c.experts > 1 || c.scores == Scores::softmax);
    if (asked) expect_close(gradient(1, false, true), by_load, tolerance);
  }
}

TEST(RouterBackward, AgreesWithFiniteDifferences) {
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
        c.gate_scale = 2.5;
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
    std::vector<double> sums;  // the constant sums of detached gates
    for (std::size_t t = 0; t < chosen.size() && c.rule == Gates::detached; ++t) {
      const Naive token(c, logits, static_cast<std::int64_t>(t));
      sums.push_back(0);
      for (const std::int32_t e : chosen[t]) sums.back() += token.scores[static_cast<std::size_t>(e)];
    }
    const std::vector<double> choices = c.stated_choices();
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
                                             .gate_scale = c.gate_scale,
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

}  // namespace
}  // namespace lyceum
