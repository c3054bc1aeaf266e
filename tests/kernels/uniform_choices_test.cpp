#include "kernels/uniform_choices.h"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/random.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

/// Draws the experts of a token from a list of those that are left, by the documented counter of Philox.
std::vector<std::int32_t> naive_experts(const UniformDraw& draw, std::int64_t token, std::int64_t experts,
                                        std::int64_t k) {
  const std::uint64_t key = splitmix64(draw.seed ^ 0x756e69666f726du);
  const auto step = draw.step.empty() ? 0u : static_cast<std::uint32_t>(draw.step[0]);
  std::vector<std::int32_t> left(static_cast<std::size_t>(experts)), chosen;
  std::iota(left.begin(), left.end(), 0);
  for (std::int64_t i = 0; i < k; ++i) {
    const std::array<std::uint32_t, 4> words =
        philox4x32({static_cast<std::uint32_t>(token), static_cast<std::uint32_t>((token >> 32 << 16) | draw.layer),
                    step, static_cast<std::uint32_t>(i / 4)},
                   {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    const auto at = left.begin() + static_cast<std::ptrdiff_t>(
                                       (std::uint64_t{words[static_cast<std::size_t>(i % 4)]} * left.size()) >> 32);
    chosen.push_back(*at);
    left.erase(at);
  }
  return chosen;
}

template <class A>
struct UniformlyChosen {
  Matrix<std::int32_t> index() { return {experts.data(), tokens, k, k}; }
  std::int64_t tokens, k;
  std::vector<std::int32_t> experts = std::vector<std::int32_t>(static_cast<std::size_t>(tokens * k), -1);
  Grid<A> gates = Grid<A>(tokens, k, 1);
};

template <class A>
class UniformChoicesTest : public testing::Test {};
using ScoreTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(UniformChoicesTest, ScoreTypes);

TYPED_TEST(UniformChoicesTest, ChoosesTheDocumentedExperts) {
  using A = TypeParam;
  const double step = 5;
  for (const auto& [experts, k] : {std::pair{9, 3}, std::pair{1, 1}, std::pair{7, 7}, std::pair{64, 10}}) {
    for (const std::int64_t period : {0, 13}) {
      for (const std::int64_t tokens : {0, 1, 300}) {
        const UniformDraw draw{.seed = 4,
                               .layer = 3,
                               .first = (std::int64_t{1} << 33) + 5,
                               .period = period,
                               .step = period > 0 ? std::span<const double>() : std::span(&step, 1)};
        UniformlyChosen<A> chosen{.tokens = tokens, .k = k};
        std::vector<std::int64_t> counts(static_cast<std::size_t>(experts * k), 100), expected_counts = counts;
        std::vector<double> probability(static_cast<std::size_t>(experts), 0.5), entropy(1, 2.0);
        launch_on(2, UniformChoices<A>{.draw = draw,
                                       .experts = experts,
                                       .gate = 0.25,
                                       .index = chosen.index(),
                                       .gates = chosen.gates.matrix(),
                                       .counts = {counts.data(), k, experts, experts},
                                       .probability = probability,
                                       .entropy = entropy});
        EXPECT_TRUE(chosen.gates.gaps_untouched());
        for (std::int64_t t = 0; t < tokens; ++t) {
          const std::int64_t token = period > 0 ? (draw.first + t) % period : draw.first + t;
          const auto begin = chosen.experts.begin() + t * k;
          const std::vector<std::int32_t> own(begin, begin + k);
          EXPECT_EQ(own, naive_experts(draw, token, experts, k));
          EXPECT_EQ(std::set<std::int32_t>(own.begin(), own.end()).size(), static_cast<std::size_t>(k));
          for (std::int64_t i = 0; i < k; ++i) {
            EXPECT_EQ(chosen.gates.at(t, i), 0.25);
            ++expected_counts[static_cast<std::size_t>(i * experts + own[static_cast<std::size_t>(i)])];
          }
        }
        EXPECT_EQ(counts, expected_counts);
        for (const double sum : probability) EXPECT_DOUBLE_EQ(sum, 0.5 + static_cast<double>(tokens) / experts);
        EXPECT_DOUBLE_EQ(entropy[0], 2 + static_cast<double>(tokens) * std::log(experts));
      }
    }
  }
}

/// The standard deviation of each share of 20,000 tokens is below 0.0036 · √(share).
TYPED_TEST(UniformChoicesTest, ChoosesAllSetsEquallyOften) {
  constexpr std::int64_t tokens = 20000, experts = 5, k = 2;
  const double step = 1;
  UniformlyChosen<TypeParam> chosen{.tokens = tokens, .k = k};
  launch_on(1, UniformChoices<TypeParam>{.draw = {.seed = 1, .layer = 0, .first = 0, .step = {&step, 1}},
                                         .experts = experts,
                                         .gate = 0.5,
                                         .index = chosen.index(),
                                         .gates = chosen.gates.matrix(),
                                         .counts = {},
                                         .probability = {}});
  std::map<std::pair<std::int32_t, std::int32_t>, double> share;
  for (std::size_t t = 0; t < tokens; ++t) {
    share[{chosen.experts[2 * t], chosen.experts[2 * t + 1]}] += 1.0 / tokens;
  }
  EXPECT_EQ(share.size(), 20u);
  for (const auto& [pair, own] : share) EXPECT_NEAR(own, 0.05, 0.008);
}

TEST(UniformChoices, RefusesOperandsThatDoNotFit) {
  UniformlyChosen<float> chosen{.tokens = 2, .k = 3};
  const auto with = [&](std::int64_t experts, std::int64_t layer, Matrix<std::int64_t> counts) {
    return UniformChoices<float>{.draw = {.seed = 1, .layer = layer, .first = 0},
                                 .experts = experts,
                                 .gate = 1,
                                 .index = chosen.index(),
                                 .gates = chosen.gates.matrix(),
                                 .counts = counts,
                                 .probability = {}};
  };
  std::vector<std::int64_t> counts(9);
  EXPECT_THROW(launch_on(1, with(2, 0, {})), Error);
  EXPECT_THROW(launch_on(1, with(4, -1, {})), Error);
  EXPECT_THROW(launch_on(1, with(4, 1 << 16, {})), Error);
  EXPECT_THROW(launch_on(1, with(4, 0, {counts.data(), 3, 3, 3})), Error);
  EXPECT_NO_THROW(launch_on(1, with(3, 0, {counts.data(), 3, 3, 3})));
}

}  // namespace
}  // namespace lyceum
