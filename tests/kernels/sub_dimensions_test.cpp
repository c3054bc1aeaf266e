#include "kernels/sub_dimensions.h"

#include <cmath>
#include <numeric>
#include <tuple>

#include "kernels/router.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

/// The sub-dimensions of tokens: the first always_on, and k of the others, which depend on the token.
struct Chosen {
  std::int64_t tokens, sub_dimensions, always_on, k;

  std::int32_t choice(std::int64_t t, std::int64_t j) const {
    return static_cast<std::int32_t>(always_on + (t * 3 + j) % (sub_dimensions - always_on));
  }
  Grid<std::int32_t> index() const {
    Grid<std::int32_t> grid(tokens, k, 1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < k; ++j) grid(t, j) = choice(t, j);
    }
    return grid;
  }
  bool on(std::int64_t t, std::int64_t i) const {
    for (std::int64_t j = 0; j < k; ++j) {
      if (choice(t, j) == i) return true;
    }
    return i < always_on;
  }
  /// The slots of pairs, which are in reverse order with an unused slot between any two.
  std::int64_t slots() const { return 2 * tokens * k; }
  std::vector<std::int64_t> slot() const {
    std::vector<std::int64_t> all;
    for (std::int64_t pair = 0; pair < tokens * k; ++pair) all.push_back(slots() - 1 - 2 * pair);
    return all;
  }
  /// Returns the slot of sub-dimension i of token t; −1 if it is not chosen.
  std::int64_t slot_of(std::int64_t t, std::int64_t i) const {
    for (std::int64_t j = 0; j < k; ++j) {
      if (choice(t, j) == i) return slot()[static_cast<std::size_t>(t * k + j)];
    }
    return -1;
  }
};

const std::vector<Chosen>& all_chosen() {
  static const std::vector<Chosen> all{{0, 4, 1, 1},   {1, 2, 0, 2},     {13, 8, 3, 1},   {70, 12, 4, 3},
                                       {9, 64, 60, 4}, {7, 256, 96, 32}, {5, 130, 64, 9}, {3, 4, 2, 0}};
  return all;
}

/// Returns the factors of one token by the formulas of SubDimensionScaling.
std::vector<double> expected_factors(const Chosen& chosen, std::int64_t t, const std::vector<double>& logits,
                                     SubDimensionScaling scaling) {
  double sum = 0, on = 0;
  for (const double x : logits) sum += std::exp(x);
  for (std::int64_t i = 0; i < chosen.sub_dimensions; ++i) {
    if (chosen.on(t, i)) on += std::exp(logits[static_cast<std::size_t>(i)]) / sum;
  }
  const double n = static_cast<double>(chosen.sub_dimensions);
  std::vector<double> factors;
  for (std::int64_t i = 0; i < chosen.sub_dimensions; ++i) {
    const double p = std::exp(logits[static_cast<std::size_t>(i)]) / sum;
    const double factor = scaling == SubDimensionScaling::restore   ? n / on * p
                          : scaling == SubDimensionScaling::printed ? n * on * p
                          : scaling == SubDimensionScaling::none    ? p
                                                                    : 1;
    factors.push_back(chosen.on(t, i) ? factor : 0);
  }
  return factors;
}

template <class A>
std::vector<double> row_of(const Grid<A>& grid, std::int64_t t, std::int64_t cols) {
  std::vector<double> row;
  for (std::int64_t c = 0; c < cols; ++c) row.push_back(grid.at(t, c));
  return row;
}

template <class A>
class SubDimensionFactorsTest : public testing::Test {};
using Accumulators = testing::Types<float, double>;
TYPED_TEST_SUITE(SubDimensionFactorsTest, Accumulators);

TYPED_TEST(SubDimensionFactorsTest, FollowTheFormulas) {
  using A = TypeParam;
  for (const Chosen& chosen : all_chosen()) {
    const auto index = chosen.index();
    const auto logits = Grid<A>::random(chosen.tokens, chosen.sub_dimensions, "logits", 3);
    const auto slope = Grid<A>::random(chosen.tokens, chosen.sub_dimensions, "slope", 1);
    for (const SubDimensionScaling scaling : {SubDimensionScaling::restore, SubDimensionScaling::printed,
                                              SubDimensionScaling::none, SubDimensionScaling::ones}) {
      Grid<A> factors(chosen.tokens, chosen.sub_dimensions, 1), d_logits(chosen.tokens, chosen.sub_dimensions, 2);
      launch_on(2,
                SubDimensionFactors<A>{logits.matrix(), index.matrix(), chosen.always_on, scaling, factors.matrix()});
      launch_on(2, SubDimensionFactorsBackward<A>{logits.matrix(), index.matrix(), chosen.always_on, scaling,
                                                  slope.matrix(), d_logits.matrix()});
      std::vector<double> expected, gradient;
      for (std::int64_t t = 0; t < chosen.tokens; ++t) {
        const std::vector<double> x = row_of(logits, t, chosen.sub_dimensions);
        const std::vector<double> own = expected_factors(chosen, t, x, scaling);
        expected.insert(expected.end(), own.begin(), own.end());
        for (std::size_t i = 0; i < x.size(); ++i) {  // compare with central differences
          double difference = 0;
          for (const double step : {1e-5, -1e-5}) {
            std::vector<double> moved = x;
            moved[i] += step;
            const std::vector<double> there = expected_factors(chosen, t, moved, scaling);
            for (std::size_t j = 0; j < x.size(); ++j) {
              difference += there[j] * slope.at(t, static_cast<std::int64_t>(j)) / (2 * step);
            }
          }
          gradient.push_back(scaling == SubDimensionScaling::ones ? 0 : difference);
        }
      }
      expect_close(factors, expected, 20 * tolerance_of<A> + 1e-12);
      expect_close(d_logits, gradient, 100 * tolerance_of<A> + 1e-6);
      EXPECT_TRUE(factors.gaps_untouched() && d_logits.gaps_untouched());
    }
  }
}

/// Checks SubDimensionLoad and its backward on rows that begin within the first sequence. The long sequence is longer
/// than a thread block, in which one thread sums a token.
TYPED_TEST(SubDimensionFactorsTest, AddUpToALoad) {
  using A = TypeParam;
  std::vector<Chosen> all = all_chosen();
  all.push_back({700, 130, 64, 9});
  for (const Chosen& chosen : all) {
    const std::int64_t seq_len = chosen.tokens > 600 ? 300 : 6, first = 4,
                       sequences = (first + chosen.tokens + seq_len - 1) / seq_len;
    const std::int64_t width = load_width(chosen.sub_dimensions), n = chosen.sub_dimensions;
    const auto index = chosen.index();
    auto factors = Grid<A>::random(chosen.tokens, n, "factors", 1);
    for (std::int64_t t = 0; t < chosen.tokens; ++t) {
      for (std::int64_t i = 0; i < n; ++i) factors(t, i) = chosen.on(t, i) ? A(0.5) + factors(t, i) * factors(t, i) : 0;
    }
    const auto d_load = Grid<double>::random(sequences, width, "d_load", 1);
    Grid<double> load(sequences, width, 1);
    Grid<A> d_factors(chosen.tokens, n, 3);
    launch_on(2, SubDimensionLoad<A>{factors.matrix(), index.matrix(), seq_len, first, load.matrix()});
    launch_on(2, SubDimensionLoadBackward<A>{factors.matrix(), d_load.matrix(), seq_len, first, d_factors.matrix()});
    std::vector<double> expected(static_cast<std::size_t>(sequences * width)), gradient;
    for (std::int64_t t = 0; t < chosen.tokens; ++t) {
      const std::int64_t sequence = (first + t) / seq_len;
      const std::vector<double> own = row_of(factors, t, n);
      const double sum = std::accumulate(own.begin(), own.end(), 0.0);
      if (chosen.k > 0) expected[static_cast<std::size_t>(sequence * width + chosen.choice(t, 0))] += 1;
      double mean = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const double part = own[static_cast<std::size_t>(i)] / sum;
        expected[static_cast<std::size_t>(sequence * width + n + i)] += part;
        mean += part * d_load.at(sequence, n + i);
      }
      for (std::int64_t i = 0; i < n; ++i) gradient.push_back((d_load.at(sequence, n + i) - mean) / sum);
    }
    expect_close(load, expected, 20 * tolerance_of<A>);
    expect_close(d_factors, gradient, 20 * tolerance_of<A>);
  }
}

template <class T>
class SubDimensionsTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(SubDimensionsTest, Types);

TYPED_TEST(SubDimensionsTest, ArePlacedWithTheirFactors) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const Chosen& chosen : all_chosen()) {
    for (const std::int64_t width : {1, 5, 130}) {
      const std::int64_t tokens = chosen.tokens, n = chosen.sub_dimensions, always = chosen.always_on;
      const auto dense = Grid<T>::random(tokens, always * width, "dense", 1);
      const auto rows = Grid<T>::random(chosen.slots(), width, "rows", 2),
                 dy = Grid<T>::random(tokens, n * width, "dy");
      const auto factors = Grid<A>::random(tokens, n, "factors", 1);
      const auto index = chosen.index();
      const std::vector<std::int64_t> slot = chosen.slot();
      std::vector<double> y, d_factors, d_dense;
      std::vector<double> d_rows(static_cast<std::size_t>(chosen.slots() * width), 7);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t from = chosen.slot_of(t, i);
          double dot = 0;
          for (std::int64_t c = 0; c < width; ++c) {
            double x = from >= 0 ? rows.at(from, c) : 0;
            if (i < always) x = dense.at(t, i * width + c);
            const double slope = factors.at(t, i) * dy.at(t, i * width + c);
            y.push_back(factors.at(t, i) * x);
            dot += dy.at(t, i * width + c) * x;
            if (i < always) d_dense.push_back(slope);
            if (i >= always && from >= 0) d_rows[static_cast<std::size_t>(from * width + c)] = slope;
          }
          d_factors.push_back(dot);
        }
      }
      const auto run_on = [&](int threads) {
        Grid<T> own(tokens, n * width, 1), own_dense(tokens, always * width, 2), own_rows(chosen.slots(), width, 1);
        Grid<A> own_factors(tokens, n, 1);
        for (std::int64_t s = 0; s < chosen.slots(); ++s) {
          for (std::int64_t c = 0; c < width; ++c) own_rows(s, c) = T(7);
        }
        launch_on(threads, PlaceSubDimensions<T>{dense.matrix(), rows.matrix(), slot, index.matrix(), always,
                                                 factors.matrix(), own.matrix()});
        launch_on(threads, PlaceSubDimensionsBackward<T>{dense.matrix(), rows.matrix(), slot, index.matrix(), always,
                                                         factors.matrix(), dy.matrix(), own_dense.matrix(),
                                                         own_rows.matrix(), own_factors.matrix()});
        return std::tuple{own, own_dense, own_rows, own_factors};
      };
      const auto [own, own_dense, own_rows, own_factors] = run_on(1);
      expect_close(own, y, tolerance_of<T>);
      expect_close(own_dense, d_dense, tolerance_of<T>);
      expect_close(own_rows, d_rows, tolerance_of<T>);
      expect_close(own_factors, d_factors, 20 * tolerance_of<A>);
      EXPECT_TRUE(own.gaps_untouched() && own_dense.gaps_untouched() && own_rows.gaps_untouched());
      const auto several = run_on(3);
      EXPECT_TRUE(own.same_bits(std::get<0>(several)) && own_factors.same_bits(std::get<3>(several)));

      // Without factors and dense: the sub-dimensions that are always on keep their contents.
      auto kept = Grid<T>::random(tokens, n * width, "there", 1);
      const Grid<T> before = kept;
      launch_on(2, PlaceSubDimensions<T>{{}, rows.matrix(), slot, index.matrix(), always, {}, kept.matrix()});
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t at = 0; at < n * width; ++at) {
          const std::int64_t i = at / width, from = chosen.slot_of(t, i);
          double there = from >= 0 ? rows.at(from, at % width) : 0;
          if (i < always) there = before.at(t, at);
          ASSERT_EQ(kept.at(t, at), there);
        }
      }
    }
  }
}

TYPED_TEST(SubDimensionsTest, AreFoundAndAddedUp) {
  using T = TypeParam;
  for (const Chosen& chosen : all_chosen()) {
    const std::int64_t cols = 37;
    const auto rows = Grid<T>::random(chosen.slots(), cols, "rows", 2);
    auto y = Grid<T>::random(chosen.tokens, cols, "y", 1);
    std::vector<std::int64_t> slot = chosen.slot();
    if (!slot.empty()) slot.front() = -1;  // a choice without a row
    std::vector<double> expected;
    for (std::int64_t t = 0; t < chosen.tokens; ++t) {
      for (std::int64_t c = 0; c < cols; ++c) {
        double sum = y.at(t, c);
        for (std::int64_t j = 0; j < chosen.k; ++j) {
          const std::int64_t from = slot[static_cast<std::size_t>(t * chosen.k + j)];
          sum += from < 0 ? 0 : rows.at(from, c);
        }
        expected.push_back(sum);
      }
    }
    launch_on(3, AddPairs<T>{rows.matrix(), slot, chosen.k, y.matrix()});
    expect_close(y, expected, 4 * tolerance_of<T>);
    EXPECT_TRUE(y.gaps_untouched());

    std::vector<std::int64_t> pair_of_row(static_cast<std::size_t>(chosen.slots()), -1), source(pair_of_row.size(), 99);
    for (std::size_t pair = 0; pair < slot.size(); ++pair) {
      pair_of_row[static_cast<std::size_t>(chosen.slot()[pair])] = static_cast<std::int64_t>(pair);
    }
    const auto index = chosen.index();
    launch_on(2, SubDimensionRows{pair_of_row, index.matrix(), chosen.sub_dimensions, source});
    for (std::size_t r = 0; r < source.size(); ++r) {
      const std::int64_t pair = pair_of_row[r];
      const std::int64_t token = pair < 0 ? 0 : pair / chosen.k;
      EXPECT_EQ(source[r], pair < 0 ? -1 : token * chosen.sub_dimensions + chosen.choice(token, pair % chosen.k));
    }
  }
}

TEST(Pieces, RefuseWhatDoesNotFit) {
  Grid<float> logits(2, 257), factors(2, 257);
  Grid<std::int32_t> index = Grid<std::int32_t>::zeros(2, 1, 0);
  EXPECT_THROW(launch_on(1, SubDimensionFactors<float>{logits.matrix(), index.matrix(), 0, SubDimensionScaling::none,
                                                       factors.matrix()}),
               Error);
}

}  // namespace
}  // namespace lyceum
