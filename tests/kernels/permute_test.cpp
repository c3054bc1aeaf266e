#include "kernels/permute.h"

#include <numeric>
#include <tuple>

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

struct Sorted {
  std::vector<std::int64_t> begin, slot_pair, pair_slot;
  bool operator==(const Sorted&) const = default;
};

Sorted sort(const Grid<std::int32_t>& index, const std::vector<std::int32_t>& order, int threads = 1,
            std::int64_t others = 0) {
  const auto pairs = static_cast<std::size_t>(index.rows * index.cols);
  Sorted result{std::vector<std::int64_t>(order.size() + 1, -7), std::vector<std::int64_t>(pairs, -7),
                std::vector<std::int64_t>(pairs, -7)};
  launch_on(threads, SortByExpert{index.matrix(), order, result.begin, result.slot_pair, result.pair_slot, others});
  return result;
}

Sorted naive_sort(const Grid<std::int32_t>& index, const std::vector<std::int32_t>& order) {
  const std::int64_t k = index.cols;
  Sorted result;
  result.pair_slot.resize(static_cast<std::size_t>(index.rows * k), -1);
  for (const std::int32_t expert : order) {
    result.begin.push_back(static_cast<std::int64_t>(result.slot_pair.size()));
    for (std::int64_t pair = 0; pair < index.rows * k; ++pair) {
      if (index.at(pair / k, pair % k) != expert) continue;
      result.pair_slot[static_cast<std::size_t>(pair)] = static_cast<std::int64_t>(result.slot_pair.size());
      result.slot_pair.push_back(pair);
    }
  }
  result.begin.push_back(static_cast<std::int64_t>(result.slot_pair.size()));
  result.slot_pair.resize(result.pair_slot.size(), -1);
  return result;
}

/// Returns random choices. Experts 3, 6, 9, … are never chosen; every `some`-th choice is −1, if `some` > 0.
Grid<std::int32_t> random_index(std::int64_t tokens, std::int64_t k, std::uint64_t experts, std::int64_t some = 0) {
  Grid<std::int32_t> index(tokens, k, 1);
  const Philox random(5, "index");
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < k; ++j) {
      const auto expert = random.below(experts, static_cast<std::uint64_t>(t * k + j));
      index(t, j) = static_cast<std::int32_t>(expert && expert % 3 == 0 ? expert - 1 : expert);
      if (some && (t * k + j) % some == 0) index(t, j) = -1;
    }
  }
  return index;
}

TEST(SortByExpert, IsStableWithEmptyExpertsInAnyOrderOnAnyNumberOfThreads) {
  for (const auto& [tokens, k, experts] : {std::tuple{0, 2, 3}, {1, 1, 1}, {7, 2, 5}, {341, 3, 16}, {20000, 3, 7}}) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + experts / 3, order.end());
    std::reverse(order.begin(), order.begin() + (experts + 1) / 2);
    for (const std::int64_t some : {0, 1, 3}) {
      const Grid<std::int32_t> index = random_index(tokens, k, static_cast<std::uint64_t>(experts), some);
      const Sorted expected = naive_sort(index, order);
      for (const int threads : {1, 2, 3}) EXPECT_EQ(sort(index, order, threads), expected) << some;
    }
  }
}

/// Experts with indices after those of `order` may be chosen, but get no slots.
TEST(SortByExpert, LeavesOutExpertsBehindThoseOfTheOrder) {
  const std::vector<std::int32_t> order{2, 0, 3, 1};
  for (const std::int64_t some : {0, 3}) {
    const Grid<std::int32_t> index = random_index(341, 3, 9, some);
    const Sorted expected = naive_sort(index, order);
    EXPECT_LT(expected.begin.back(), 341 * 3);
    for (const int threads : {1, 3}) EXPECT_EQ(sort(index, order, threads, 5), expected) << some;
    EXPECT_THROW(sort(index, order, 1, 4), Error);
  }
}

TEST(SortByExpert, RefusesBadExpertsAndOrders) {
  Grid<std::int32_t> index(1, 2);
  for (const std::int32_t bad : {-2, 3}) {
    index.values = {0, bad};
    EXPECT_THROW(sort(index, {0, 1, 2}), Error);
  }
  index.values = {0, 1};
  EXPECT_THROW(sort(index, {0, 1, 1}), Error);
  EXPECT_THROW(sort(index, {0, 1, 3}), Error);
}

template <class T>
class PermuteTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(PermuteTest, Types);

TYPED_TEST(PermuteTest, GathersRowsAndZeros) {
  using T = TypeParam;
  for (const auto& [rows, hidden] : {std::pair{0, 7}, {1, 1}, {7, 33}, {341, 129}}) {
    const auto x = Grid<T>::random(5, hidden, "x", 3);
    std::vector<std::int64_t> source;
    for (std::int64_t r = 0; r < rows; ++r) source.push_back(r % 4 == 3 ? -1 : r * 7 % 15);
    Grid<T> y(rows, hidden, 2);
    launch_on(2, GatherRows<T>{x.matrix(), source, y.matrix(), 3});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < hidden; ++c) ASSERT_EQ(y.at(r, c), r % 4 == 3 ? 0 : x.at(r * 7 % 15 / 3, c));
    }
    EXPECT_TRUE(y.gaps_untouched());
  }
}

TEST(PermuteTest, GathersNumbersOfExperts) {
  for (const std::int64_t columns : {3, 8}) {
    Grid<std::int32_t> x(2, columns, 1), y(3, columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      x(0, c) = static_cast<std::int32_t>(c) - 1;
      x(1, c) = std::numeric_limits<std::int32_t>::max() - static_cast<std::int32_t>(c);
    }
    launch_on(2, GatherRows<std::int32_t>{x.matrix(), std::vector<std::int64_t>{3, -1, 0}, y.matrix(), 2});
    for (std::int64_t c = 0; c < columns; ++c) {
      EXPECT_EQ(y.at(0, c), x.at(1, c));
      EXPECT_EQ(y.at(1, c), -1) << "no expert";
      EXPECT_EQ(y.at(2, c), x.at(0, c));
    }
  }
}

/// A problem for CombineRows: the pairs of all tokens are in shuffled slots, some slots are unused, and every 11th pair
/// is dropped.
template <class T>
struct Combination {
  std::int64_t tokens, hidden, k;
  std::vector<std::int64_t> slot;
  Grid<T> x, dy, y, dx;
  Grid<Accumulator<T>> gate, d_gate;

  /// `gap`: rows have gaps of this many elements, or small multiples of it.
  Combination(std::int64_t tokens, std::int64_t hidden, std::int64_t k, std::int64_t gap = 1)
      : tokens(tokens),
        hidden(hidden),
        k(k),
        x(Grid<T>::random(tokens * k + 4, hidden, "x", 3 * gap)),
        dy(Grid<T>::random(tokens, hidden, "dy", 2 * gap)),
        y(tokens, hidden, gap),
        dx(tokens * k + 4, hidden, 2 * gap),
        gate(Grid<Accumulator<T>>::random(tokens, k, "gate", 1)),
        d_gate(tokens, k, 1) {
    const Permutation shuffled(6, "slots", static_cast<std::uint64_t>(tokens * k + 4));
    for (std::int64_t pair = 0; pair < tokens * k; ++pair) {
      slot.push_back(pair % 11 == 10 ? -1 : static_cast<std::int64_t>(shuffled(static_cast<std::uint64_t>(pair))));
    }
  }
  std::int64_t slot_of(std::int64_t t, std::int64_t j) const { return slot[static_cast<std::size_t>(t * k + j)]; }
  void run(int threads, bool gated = true) {
    const Matrix<const Accumulator<T>> gates = gated ? gate.matrix() : Matrix<Accumulator<T>>();
    const Matrix<Accumulator<T>> d_gates = gated ? d_gate.matrix() : Matrix<Accumulator<T>>();
    launch_on(threads, CombineRows<T>{x.matrix(), slot, k, gates, y.matrix()});
    launch_on(threads, CombineRowsBackward<T>{x.matrix(), dy.matrix(), slot, k, gates, dx.matrix(), d_gates});
  }
  double gate_at(std::int64_t t, std::int64_t j, bool gated) const { return gated ? gate.at(t, j) : 1; }

  std::vector<double> naive(bool gated) const {
    std::vector<double> result;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          if (slot_of(t, j) >= 0) sum += gate_at(t, j, gated) * x.at(slot_of(t, j), c);
        }
        result.push_back(sum);
      }
    }
    return result;
  }
};

TYPED_TEST(PermuteTest, CombinesInOrderAndGivesGradients) {
  using T = TypeParam;
  for (const auto& [tokens, hidden, k, gap] : {std::tuple{0, 3, 2, 1},
                                               {1, 1, 1, 1},
                                               {7, 33, 2, 1},
                                               {33, 600, 3, 1},
                                               {100, 341, 1, 1},
                                               {5, 40, 4, 8},
                                               {7, 33, 6, 1},
                                               {9, 24, 9, 8}}) {
    for (const bool gated : {true, false}) {
      Combination<T> one(tokens, hidden, k, gap), two = one;
      one.run(1, gated);
      two.run(2, gated);
      EXPECT_TRUE(one.y.same_bits(two.y) && one.dx.same_bits(two.dx) && one.d_gate.same_bits(two.d_gate));
      expect_close(one.y, one.naive(gated));
      auto dx = Grid<double>::zeros(tokens * k + 4, hidden);
      auto d_gate = Grid<double>::zeros(tokens, k);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t j = 0; j < k; ++j) {
          if (one.slot_of(t, j) < 0) continue;
          for (std::int64_t c = 0; c < hidden; ++c) {
            dx(one.slot_of(t, j), c) = one.gate_at(t, j, gated) * one.dy.at(t, c);
            d_gate(t, j) += one.dy.at(t, c) * one.x.at(one.slot_of(t, j), c);
          }
        }
      }
      expect_close(one.dx, dx.flat());
      if (gated) expect_close(one.d_gate, d_gate.flat(), 10 * tolerance_of<Accumulator<T>>);
    }
  }
}

TYPED_TEST(PermuteTest, NanShowsWhereItBelongs) {
  Combination<TypeParam> combination(3, 5, 2);
  combination.x(combination.slot_of(1, 1), 2) = poison<TypeParam>();
  combination.dy(2, 3) = poison<TypeParam>();
  combination.run(1);
  EXPECT_TRUE(is_nan(combination.y.at(1, 2)));
  EXPECT_FALSE(is_nan(combination.y.at(1, 1)) || is_nan(combination.y.at(0, 2)));
  EXPECT_TRUE(is_nan(combination.d_gate.at(1, 1)) && is_nan(combination.d_gate.at(2, 0)));
  EXPECT_FALSE(is_nan(combination.d_gate.at(1, 0)));
  EXPECT_TRUE(is_nan(combination.dx.at(combination.slot_of(2, 0), 3)));
}

TEST(Permute, CombineGradientsByFiniteDifferences) {
  Combination<double> combination(6, 3, 2);
  combination.run(1);
  const std::vector<double> dy = combination.dy.flat();
  const auto of_x = [&](const std::vector<double>& v) {
    auto moved = combination;
    moved.x = Grid<double>::from(16, 3, v);
    return weighted_sum(moved.naive(true), dy);
  };
  expect_gradient(of_x, combination.x.flat(), combination.dx.flat());
  const auto of_gate = [&](const std::vector<double>& v) {
    auto moved = combination;
    moved.gate = Grid<double>::from(6, 2, v);
    return weighted_sum(moved.naive(true), dy);
  };
  expect_gradient(of_gate, combination.gate.flat(), combination.d_gate.flat());
}

TEST(Permute, RefusesRowsThatAreNotThere) {
  const auto x = Grid<float>::random(2, 3, "x");
  Grid<float> y(1, 3);
  const std::vector<std::int64_t> source{2};
  EXPECT_THROW(launch_on(1, GatherRows<float>{x.matrix(), source, y.matrix()}), Error);
  EXPECT_THROW(launch_on(1, CombineRows<float>{x.matrix(), source, 1, {}, y.matrix()}), Error);
}

}  // namespace
}  // namespace lyceum
