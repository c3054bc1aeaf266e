#include "kernels/cross_entropy.h"

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double scale = 0.25, z_scale = 0.125;

template <class T>
struct Loss {
  using A = Accumulator<T>;
  Grid<T> logits, d_logits;
  std::vector<std::int32_t> targets;
  Grid<A> loss, log_sum_exp, squares, largest;
  std::vector<A> factor{static_cast<A>(scale)}, z_factor{static_cast<A>(z_scale)};

  Loss(std::int64_t tokens, std::int64_t vocab, double deviation = 2)
      : logits(Grid<T>::random(tokens, vocab, "logits", 3, deviation)),
        d_logits(tokens, vocab, 1),
        loss(1, tokens),
        log_sum_exp(1, tokens),
        squares(1, tokens),
        largest(1, tokens) {
    const Philox random(3, "targets");
    for (std::int64_t t = 0; t < tokens; ++t) {
      targets.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab), static_cast<std::uint64_t>(t))));
    }
  }
  void run(int threads = 1) {
    launch_on(threads, CrossEntropyForward<T>{logits.matrix(), targets, loss.span(), log_sum_exp.span()});
    launch_on(threads,
              CrossEntropyBackward<T>{logits.matrix(), targets, log_sum_exp.span(), factor, d_logits.matrix()});
  }
  /// Computes both losses and the gradient of their sum.
  void run_with_z(int threads = 1) {
    launch_on(threads, CrossEntropyForward<T>{.logits = logits.matrix(),
                                              .targets = targets,
                                              .loss = loss.span(),
                                              .log_sum_exp = log_sum_exp.span(),
                                              .squares = squares.span(),
                                              .largest = largest.span()});
    launch_on(threads, CrossEntropyBackward<T>{.logits = logits.matrix(),
                                               .targets = targets,
                                               .log_sum_exp = log_sum_exp.span(),
                                               .scale = factor,
                                               .d_logits = d_logits.matrix(),
                                               .z_scale = z_factor});
  }
};

std::vector<double> naive(const Grid<double>& logits, const std::vector<std::int32_t>& targets) {
  std::vector<double> losses;
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    long double sum = 0;
    for (std::int64_t v = 0; v < logits.cols; ++v) sum += std::exp(static_cast<long double>(logits.at(t, v)));
    losses.push_back(static_cast<double>(std::log(sum)) - logits.at(t, targets[static_cast<std::size_t>(t)]));
  }
  return losses;
}

template <class T>
class CrossEntropyTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(CrossEntropyTest, Types);

TYPED_TEST(CrossEntropyTest, AgreesWithExtendedPrecision) {
  using T = TypeParam;
  const double exact = tolerance_of<Accumulator<T>>;
  for (const auto& [tokens, vocab] : {std::pair{1, 1}, {1, 7}, {0, 33}, {33, 341}, {2, 8192}, {1, 102400}}) {
    Loss<T> loss(tokens, vocab);
    loss.run();
    const std::vector<double> expected = naive(loss.logits.widened(), loss.targets);
    for (std::size_t t = 0; t < expected.size(); ++t) {
      // The loss is a difference of numbers of a few units, so the error is relative to these.
      ASSERT_TRUE(std::abs(to_double(loss.loss.values[t]) - expected[t]) <= exact * (10 + expected[t]));
    }
    std::vector<double> gradient;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto target = loss.targets[static_cast<std::size_t>(t)];
      for (std::int64_t v = 0; v < vocab; ++v) {
        const double log_sum = expected[static_cast<std::size_t>(t)] + loss.logits.at(t, target);
        gradient.push_back(scale * (std::exp(loss.logits.at(t, v) - log_sum) - (v == target)));
      }
    }
    expect_close(loss.d_logits, gradient, 4 * tolerance_of<T>);
  }
}

TYPED_TEST(CrossEntropyTest, TokensWithoutATargetHaveNoLossAndNoGradient) {
  using T = TypeParam;
  Loss<T> all(9, 341), some = all;
  all.run();
  for (const std::size_t t : {0, 4, 5, 8}) some.targets[t] = no_target;
  some.run();
  for (std::int64_t t = 0; t < 9; ++t) {
    const bool counts = some.targets[static_cast<std::size_t>(t)] != no_target;
    EXPECT_EQ(some.loss.at(0, t), counts ? all.loss.at(0, t) : 0);
    for (std::int64_t v = 0; v < 341; ++v) EXPECT_EQ(some.d_logits.at(t, v), counts ? all.d_logits.at(t, v) : 0);
  }
}

TYPED_TEST(CrossEntropyTest, ZLossAgreesWithExtendedPrecision) {
  using T = TypeParam;
  for (const auto& [tokens, vocab] : {std::pair{1, 1}, {1, 7}, {0, 33}, {33, 341}, {2, 8192}}) {
    Loss<T> loss(tokens, vocab), plain(tokens, vocab);
    if (tokens > 1) loss.targets[1] = plain.targets[1] = no_target;
    loss.run_with_z(2);
    plain.run();
    EXPECT_TRUE(loss.loss.same_bits(plain.loss));
    std::vector<double> squares, gradient;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t target = loss.targets[static_cast<std::size_t>(t)];
      const double counts = target == no_target ? 0 : 1;
      long double sum = 0;
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<long double>(loss.logits.at(t, v)));
      double largest = loss.logits.at(t, 0);
      for (std::int64_t v = 1; v < vocab; ++v) largest = std::max(largest, loss.logits.at(t, v));
      EXPECT_EQ(loss.largest.at(0, t), largest);
      const auto log_sum = static_cast<double>(std::log(sum));
      squares.push_back(counts * log_sum * log_sum);
      for (std::int64_t v = 0; v < vocab; ++v) {
        const double p = std::exp(loss.logits.at(t, v) - log_sum);
        gradient.push_back(counts * (scale * (p - (v == target)) + z_scale * 2 * log_sum * p));
      }
    }
    expect_close(loss.squares, squares, 8 * tolerance_of<Accumulator<T>>);
    expect_close(loss.d_logits, gradient, 4 * tolerance_of<T>);
  }
}

TYPED_TEST(CrossEntropyTest, ZLossOfWeightZeroChangesNoBit) {
  Loss<TypeParam> loss(9, 341), plain = loss;
  loss.z_factor[0] = 0;
  loss.run_with_z();
  plain.run();
  EXPECT_TRUE(loss.d_logits.same_bits(plain.d_logits));
}

TYPED_TEST(CrossEntropyTest, GradientMayOverwriteTheLogits) {
  Loss<TypeParam> loss(7, 341);
  loss.run();
  launch_on(1, CrossEntropyBackward<TypeParam>{loss.logits.matrix(), loss.targets, loss.log_sum_exp.span(), loss.factor,
                                               loss.logits.matrix()});
  EXPECT_EQ(loss.logits.flat(), loss.d_logits.flat());
}

TYPED_TEST(CrossEntropyTest, SameBitsOnAnyNumberOfThreads) {
  Loss<TypeParam> one(101, 1000), two = one;
  one.run(1);
  two.run(2);
  EXPECT_TRUE(one.loss.same_bits(two.loss));
  EXPECT_TRUE(one.d_logits.same_bits(two.d_logits));
}

TYPED_TEST(CrossEntropyTest, StableForLargeLogits) {
  using T = TypeParam;
  Loss<T> loss(2, 3);
  const std::vector<float> rows{-1e30f, 1e30f, -1e30f, 30000, -30000, 30000};
  for (std::size_t i = 0; i < 6; ++i)
    loss.logits(static_cast<std::int64_t>(i / 3), static_cast<std::int64_t>(i % 3)) = static_cast<T>(rows[i]);
  loss.targets = {1, 0};
  loss.run();
  EXPECT_EQ(loss.loss.at(0, 0), 0);
  EXPECT_NEAR(loss.loss.at(0, 1), std::log(2.0), 0.004);  // tolerance: the distance of floats near 30000
  EXPECT_NEAR(loss.d_logits.at(1, 0), -scale / 2, 0.001);
  EXPECT_EQ(loss.d_logits.at(1, 1), 0);
}

TYPED_TEST(CrossEntropyTest, NanAndInfinityShow) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity}) {
    for (const std::int64_t place : {0, 20, 32}) {
      Loss<T> loss(2, 33);
      loss.logits(1, place) = static_cast<T>(bad);
      loss.run();
      EXPECT_FALSE(is_nan(loss.loss.at(0, 0)));
      EXPECT_TRUE(is_nan(loss.loss.at(0, 1)));
      for (std::int64_t v = 0; v < 33; ++v) EXPECT_TRUE(is_nan(loss.d_logits.at(1, v)));
    }
  }
  Loss<T> nothing(1, 33);
  for (T& value : nothing.logits.values) value = static_cast<T>(-infinity);
  nothing.run();
  EXPECT_TRUE(is_nan(nothing.loss.at(0, 0)));
}

/// Computes the loss and gradient of `whole` from slices of the vocabulary that begin at `begins`.
template <class T>
void run_in_parts(Loss<T>& whole, const std::vector<std::int64_t>& begins) {
  using A = Accumulator<T>;
  const std::int64_t tokens = whole.logits.rows, vocab = whole.logits.cols;
  const auto parts = static_cast<std::int64_t>(begins.size());
  Grid<A> statistics(parts * tokens, 3);
  const auto for_each_part = [&](auto&& f) {
    for (std::size_t p = 0; p < begins.size(); ++p) {
      const std::int64_t end = p + 1 < begins.size() ? begins[p + 1] : vocab;
      f(static_cast<std::int64_t>(p), begins[p], end - begins[p]);
    }
  };
  for_each_part([&](std::int64_t p, std::int64_t first, std::int64_t count) {
    launch_on(2, CrossEntropyPart<T>{.logits = whole.logits.matrix().cols_from(first, count),
                                     .targets = whole.targets,
                                     .first = first,
                                     .vocab = vocab,
                                     .statistics = statistics.matrix().rows_from(p * tokens, tokens)});
  });
  launch_on(2, CrossEntropyJoin<A>{.statistics = statistics.matrix(),
                                   .targets = whole.targets,
                                   .loss = whole.loss.span(),
                                   .log_sum_exp = whole.log_sum_exp.span(),
                                   .squares = whole.squares.span(),
                                   .largest = whole.largest.span()});
  for_each_part([&](std::int64_t, std::int64_t first, std::int64_t count) {
    launch_on(2, CrossEntropyBackward<T>{.logits = whole.logits.matrix().cols_from(first, count),
                                         .targets = whole.targets,
                                         .log_sum_exp = whole.log_sum_exp.span(),
                                         .scale = whole.factor,
                                         .d_logits = whole.d_logits.matrix().cols_from(first, count),
                                         .first = first,
                                         .vocab = vocab,
                                         .z_scale = whole.z_factor});
  });
}

TYPED_TEST(CrossEntropyTest, PartsOfTheVocabularyGiveTheWhole) {
  using T = TypeParam;
  for (const auto& begins : std::vector<std::vector<std::int64_t>>{{0}, {0, 170}, {0, 1, 1, 200, 340}}) {
    for (const std::int64_t tokens : {0, 1, 33}) {
      Loss<T> whole(tokens, 341), parts(tokens, 341);
      if (tokens > 1) whole.targets[1] = parts.targets[1] = no_target;
      whole.run_with_z();
      run_in_parts(parts, begins);
      expect_close(parts.loss, whole.loss.flat(), 4 * tolerance_of<Accumulator<T>>);
      expect_close(parts.log_sum_exp, whole.log_sum_exp.flat(), 4 * tolerance_of<Accumulator<T>>);
      EXPECT_TRUE(parts.largest.same_bits(whole.largest));
      expect_close(parts.squares, whole.squares.flat(), 8 * tolerance_of<Accumulator<T>>);
      expect_close(parts.d_logits, whole.d_logits.flat(), 4 * tolerance_of<T>);
    }
  }
}

TYPED_TEST(CrossEntropyTest, PartsShowNanAndInfinityAndBearWordsThatCannotBe) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::int64_t> begins{0, 11, 22};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity}) {
    for (const std::int64_t place : {0, 20, 32}) {
      Loss<T> loss(2, 33);
      loss.logits(1, place) = static_cast<T>(bad);
      run_in_parts(loss, begins);
      EXPECT_FALSE(is_nan(loss.loss.at(0, 0)));
      EXPECT_TRUE(is_nan(loss.loss.at(0, 1)));
      for (std::int64_t v = 0; v < 33; ++v) EXPECT_TRUE(is_nan(loss.d_logits.at(1, v)));
    }
  }
  Loss<T> whole(1, 33), parts(1, 33);
  for (Loss<T>* loss : {&whole, &parts}) {
    loss->targets = {3};
    for (std::int64_t v = 11; v < 22; ++v) loss->logits(0, v) = static_cast<T>(-infinity);  // a whole slice
  }
  whole.run();
  run_in_parts(parts, begins);
  expect_close(parts.loss, whole.loss.flat(), 4 * tolerance_of<Accumulator<T>>);
  for (std::int64_t v = 0; v < 33; ++v) {
    parts.logits(0, v) = static_cast<T>(-infinity);
  }
  run_in_parts(parts, begins);
  EXPECT_TRUE(is_nan(parts.loss.at(0, 0)));
}

TEST(CrossEntropy, GradientByFiniteDifferences) {
  Loss<double> loss(3, 7);
  loss.run();
  const auto f = [&](const std::vector<double>& v) {
    double sum = 0;
    for (const double value : naive(Grid<double>::from(3, 7, v), loss.targets)) sum += scale * value;
    return sum;
  };
  expect_gradient(f, loss.logits.flat(), loss.d_logits.flat());
}

TEST(CrossEntropy, GradientOfTheZLossByFiniteDifferences) {
  Loss<double> loss(3, 7);
  loss.run_with_z();
  const auto f = [&](const std::vector<double>& v) {
    const auto logits = Grid<double>::from(3, 7, v);
    double sum = 0;
    const std::vector<double> losses = naive(logits, loss.targets);
    for (std::size_t t = 0; t < losses.size(); ++t) {
      const double log_sum = losses[t] + logits.at(static_cast<std::int64_t>(t), loss.targets[t]);
      sum += scale * losses[t] + z_scale * log_sum * log_sum;
    }
    return sum;
  };
  expect_gradient(f, loss.logits.flat(), loss.d_logits.flat());
}

TEST(CrossEntropy, RefusesTargetsOutsideOfTheVocabulary) {
  for (const std::int32_t bad : {-2, 7}) {  // -1 is no_target
    Loss<float> loss(3, 7);
    loss.targets[1] = bad;
    EXPECT_THROW(loss.run(), Error);
    EXPECT_THROW(run_in_parts(loss, {0, 4}), Error);
  }
}

}  // namespace
}  // namespace lyceum
