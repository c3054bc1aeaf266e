#include "kernels/pair_divergence.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double entropy_weight = 0.25, square_weight = 0.125, pair_weight = 0.75;

/// Two pairs of sequences. The last token of the first two sequences has no target. `gap`: elements between the rows of
/// the logits; GPUs read rows without gaps in packs. `deviation`: of the logits.
template <class T>
struct PairedLogits {
  using A = Accumulator<T>;
  std::int64_t seq_len, vocab;
  Grid<T> logits, d_logits;
  std::vector<std::int32_t> targets;
  Grid<A> log_sum_exp = Grid<A>(1, 4 * seq_len), sums = Grid<A>(2, 2 * seq_len);
  std::vector<A> factor{static_cast<A>(entropy_weight)}, z_factor{static_cast<A>(square_weight)},
      of_pairs{static_cast<A>(pair_weight)};

  PairedLogits(std::int64_t seq_len, std::int64_t vocab, std::int64_t gap = 3, double deviation = 1.5)
      : seq_len(seq_len),
        vocab(vocab),
        logits(Grid<T>::random(4 * seq_len, vocab, "logits", gap, deviation)),
        d_logits(4 * seq_len, vocab, gap > 0 ? 1 : 0) {
    for (std::int64_t s = 0; s < 4; ++s) {
      for (std::int64_t t = 0; t < seq_len; ++t) {
        const bool none = s < 2 && t == seq_len - 1;
        targets.push_back(none ? no_target : static_cast<std::int32_t>((7 * t + 3 * (s / 2)) % vocab));
      }
    }
    for (std::int64_t r = 0; r < 4 * seq_len; ++r) {
      double sum = 0, most = to_double(logits(r, 0));
      for (std::int64_t v = 0; v < vocab; ++v) most = std::max(most, to_double(logits(r, v)));
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(to_double(logits(r, v)) - most);
      log_sum_exp(0, r) = static_cast<A>(most + std::log(sum));
    }
  }
  /// Computes the sums and the gradient.
  void run(int threads = 1) {
    launch_on(threads, PairDivergence<T>{logits.matrix(), targets, log_sum_exp.span(), seq_len, sums.matrix()});
    launch_on(threads, backward());
  }
  PairedCrossEntropyBackward<T> backward() {
    return {.logits = logits.matrix(),
            .targets = targets,
            .log_sum_exp = log_sum_exp.span(),
            .scale = factor,
            .d_logits = d_logits.matrix(),
            .first = 0,
            .vocab = vocab,
            .z_scale = z_factor,
            .seq_len = seq_len,
            .sums = sums.matrix(),
            .pair_scale = of_pairs};
  }
  double log_probability(std::int64_t row, std::int64_t word) const {
    return logits.at(row, word) - log_sum_exp.at(0, row);
  }
};

template <class T>
class PairDivergenceTest : public testing::Test {};
using FloatTypes = testing::Types<float, double, bfloat16>;
TYPED_TEST_SUITE(PairDivergenceTest, FloatTypes);

TYPED_TEST(PairDivergenceTest, FollowsItsFormula) {
  using T = TypeParam;
  const double tolerance = std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 1e-5 : 1e-2;
  struct Case {
    std::int64_t seq_len, vocab, gap = 3;
    double deviation = 1.5;
  };
  for (const auto& [seq_len, vocab, gap, deviation] :
       {Case{1, 1}, Case{3, 7}, Case{5, 64}, Case{2, 1000}, Case{5, 64, 0}, Case{2, 1000, 0}, Case{3, 64, 0, 60}}) {
    PairedLogits<T> pairs(seq_len, vocab, gap, deviation);
    pairs.run(2);
    EXPECT_TRUE(pairs.d_logits.gaps_untouched());
    for (std::int64_t s = 0; s < 4; s += 2) {
      for (std::int64_t t = 0; t < seq_len; ++t) {
        const std::int64_t a = s * seq_len + t, b = a + seq_len, pair = s / 2 * seq_len + t;
        const std::int32_t target = pairs.targets[static_cast<std::size_t>(a)];
        double kl = 0, reverse = 0;
        for (std::int64_t v = 0; v < vocab && target != no_target; ++v) {
          const double log_p = pairs.log_probability(a, v), log_q = pairs.log_probability(b, v);
          kl += std::exp(log_p) * (log_p - log_q);
          reverse += std::exp(log_q) * (log_q - log_p);
        }
        EXPECT_NEAR(pairs.sums.at(0, pair), (kl + reverse) / 2, tolerance * (1 + kl));
        EXPECT_NEAR(pairs.sums.at(1, pair), kl, tolerance * (1 + kl));
        for (std::int64_t v = 0; v < vocab; ++v) {
          const double log_p = pairs.log_probability(a, v), log_q = pairs.log_probability(b, v), d = log_p - log_q;
          const double p = std::exp(log_p), q = std::exp(log_q), hit = v == target ? 1 : 0;
          const double of_pair = pair_weight / 2, counts = target == no_target ? 0 : 1;
          const double d_a = entropy_weight * (p - hit) + 2 * square_weight * pairs.log_sum_exp.at(0, a) * p +
                             of_pair * (p * (d - kl) + p - q);
          const double d_b = entropy_weight * (q - hit) + 2 * square_weight * pairs.log_sum_exp.at(0, b) * q +
                             of_pair * (q * (-d - reverse) + q - p);
          EXPECT_NEAR(pairs.d_logits.at(a, v), counts * d_a, tolerance * (1 + std::abs(d_a)));
          EXPECT_NEAR(pairs.d_logits.at(b, v), counts * d_b, tolerance * (1 + std::abs(d_b)));
        }
      }
    }
  }
}

/// The gradient may overwrite the logits.
TYPED_TEST(PairDivergenceTest, WorksInPlace) {
  using T = TypeParam;
  PairedLogits<T> apart(4, 130), in_place(4, 130);
  apart.run();
  launch_on(1, PairDivergence<T>{in_place.logits.matrix(), in_place.targets, in_place.log_sum_exp.span(), 4,
                                 in_place.sums.matrix()});
  PairedCrossEntropyBackward<T> backward = in_place.backward();
  backward.d_logits = in_place.logits.matrix();
  launch_on(3, backward);
  EXPECT_EQ(in_place.logits.flat(), apart.d_logits.flat());
}

/// Sums over two slices of the vocabulary add up, and each slice has the gradient of its words.
TYPED_TEST(PairDivergenceTest, IsDividedAmongSlicesOfTheVocabulary) {
  using T = TypeParam;
  using A = Accumulator<T>;
  constexpr std::int64_t seq_len = 3, vocab = 24, first = 10;
  PairedLogits<T> whole(seq_len, vocab);
  whole.run();
  Grid<A> left(2, 2 * seq_len), right(2, 2 * seq_len);
  const Matrix<T> logits = whole.logits.matrix();
  const auto sums_of = [&](std::int64_t from, std::int64_t words, Grid<A>& sums) {
    launch_on(1, PairDivergence<T>{logits.cols_from(from, words), whole.targets, whole.log_sum_exp.span(), seq_len,
                                   sums.matrix()});
  };
  sums_of(0, first, left);
  sums_of(first, vocab - first, right);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t pair = 0; pair < 2 * seq_len; ++pair) {
      EXPECT_NEAR(left.at(i, pair) + right.at(i, pair), whole.sums.at(i, pair), 1e-5);
    }
  }
  PairedCrossEntropyBackward<T> backward = whole.backward();
  Grid<T> part(4 * seq_len, vocab - first, 2);
  const double tolerance = std::is_same_v<T, bfloat16> ? 1e-2 : 1e-6;
  backward.logits = logits.cols_from(first, vocab - first);
  backward.d_logits = part.matrix();
  backward.first = first;
  launch_on(1, backward);
  for (std::int64_t r = 0; r < 4 * seq_len; ++r) {
    for (std::int64_t v = first; v < vocab; ++v) {
      EXPECT_NEAR(part.at(r, v - first), whole.d_logits.at(r, v), tolerance);
    }
  }
}

TEST(PairDivergence, RefusesSequencesThatAreNoPairs) {
  PairedLogits<float> pairs(3, 5);
  const auto with = [&](std::int64_t seq_len) {
    return PairDivergence<float>{pairs.logits.matrix(), pairs.targets, pairs.log_sum_exp.span(), seq_len,
                                 pairs.sums.matrix()};
  };
  EXPECT_NO_THROW(launch_on(1, with(6)));
  EXPECT_THROW(launch_on(1, with(4)), Error);
  EXPECT_THROW(launch_on(1, with(0)), Error);
  PairedCrossEntropyBackward<float> backward = pairs.backward();
  backward.pair_scale = {};
  EXPECT_THROW(launch_on(1, backward), Error);
}

}  // namespace
}  // namespace lyceum
