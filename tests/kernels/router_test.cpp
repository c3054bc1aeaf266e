#include "kernels/router.h"

#include <tuple>

#include "kernels/router_backward.h"
#include "kernels/router_problem.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using namespace router_problem;

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

TYPED_TEST(RouterTest, NeverPrefersNan) {
  using A = TypeParam;
  const A nan = poison<A>(), low = -std::numeric_limits<A>::infinity(), large = A(1e30), zero = A(-0.0);
  const Case c{.tokens = 6, .experts = 4, .k = 3, .sequences = 1, .seq_len = 6};
  Grid<A> logits(6, 4);
  logits.values = {nan,    nan,   nan,    nan,   nan,  low,  nan,  A(1), low, low,  low, low,
                   -large, large, -large, large, A(0), zero, A(0), zero, low, A(1), low, -low};
  for (const std::int64_t gap : {0, 300}) {  // 300: adds experts that no token chooses
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

/// Without least_logit, all sigmoid or sqrt_softplus scores of such low logits would be 0, and so would their sum, by
/// which gates and probabilities are divided.
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
  other.k = 4;  // more than the experts
  refuses(fits, other);
  other = fits;
  other.tokens = 3;
  refuses(fits, other);
  other = fits;
  other.first = 1;  // tokens after the last sequence
  refuses(fits, other);
  other = fits;
  other.experts = 4;
  refuses(fits, other);
  other = fits;
  other.biased = true;  // softmax scores have no bias
  refuses(fits, other);
  other = fits;
  other.groups = 2;
  other.group_limit = 3;
  refuses(fits, other);
  other = fits;
  other.skip = 2;  // leaves one expert to choose
  refuses(fits, other);
}

}  // namespace
}  // namespace lyceum
