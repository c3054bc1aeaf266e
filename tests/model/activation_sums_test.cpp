#include "model/activation_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "support/errors.h"

namespace lyceum {
namespace {

/// Returns [tokens, hidden], of which a tenth are zeros, like dimensions that are switched off.
std::vector<float> activations(std::int64_t tokens, std::int64_t hidden) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> x(static_cast<std::size_t>(tokens * hidden));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float level = 0.2f + static_cast<float>(i % static_cast<std::size_t>(hidden) %
                                                  5);  // some dimensions are high for several tokens in a row
    x[i] = uniform(random) < 0.1f ? 0 : level * normal(random);
  }
  return x;
}

/// True if dimension i of token t is high: fewer than ⌈part · hidden⌉ dimensions of the token are larger.
bool is_high(const std::vector<float>& x, std::int64_t hidden, std::int64_t t, std::int64_t i, double part) {
  const auto at = [&](std::int64_t j) { return std::abs(x[static_cast<std::size_t>(t * hidden + j)]); };
  std::int64_t larger = 0;
  for (std::int64_t j = 0; j < hidden; ++j) larger += at(j) > at(i) ? 1 : 0;
  return at(i) > 0 && static_cast<double>(larger) < std::ceil(part * static_cast<double>(hidden) - 1e-9);
}

/// Computes the statistics over all windows directly by their definitions.
TEST(ActivationSums, AreWhatTheDefinitionsSay) {
  constexpr std::int64_t samples = 3, seq_len = 23, hidden = 17;
  const std::vector<float> x = activations(samples * seq_len, hidden);
  ActivationSums sums(hidden);
  sums.add(std::span(x).first(2 * seq_len * hidden), seq_len);
  sums.add(std::span(x).subspan(2 * seq_len * hidden), seq_len);
  const ActivationFlow::Values values = sums.means({4, Site::attention}, true, samples, seq_len);
  EXPECT_EQ(values.id, (MixtureId{4, Site::attention}));
  EXPECT_TRUE(values.output);

  const double tokens = samples * seq_len;
  std::vector<double> top(hidden, 0), magnitude(hidden, 0);
  double median = 0;
  for (std::int64_t t = 0; t < samples * seq_len; ++t) {
    std::vector<double> token;
    for (std::int64_t i = 0; i < hidden; ++i) {
      token.push_back(std::pow(double{x[static_cast<std::size_t>(t * hidden + i)]}, 2));
      magnitude[static_cast<std::size_t>(i)] += token.back() / tokens;
    }
    std::ranges::sort(token);
    median += token[hidden / 2] / tokens;
    double all = 0, held = 0;
    for (const double value : token) all += value;
    for (std::size_t m = 0; m < token.size(); ++m) top[m] += (held += token[hidden - 1 - m]) / all / tokens;
  }
  EXPECT_NEAR(values.median, median, 1e-6);
  for (std::size_t i = 0; i < hidden; ++i) {
    EXPECT_NEAR(values.magnitude[i], magnitude[i], 1e-6);
    EXPECT_NEAR(values.top_share[i], top[i], 1e-6);
  }

  for (std::size_t q = 0; q < high_parts.size(); ++q) {
    const auto high = [&](std::int64_t t, std::int64_t i) { return is_high(x, hidden, t, i, high_parts[q]); };
    for (std::int64_t w = 1; w <= longest_window; ++w) {
      double common = 0, windows = 0;
      for (std::int64_t s = 0; s < samples; ++s) {
        for (std::int64_t first = s * seq_len; first + w <= (s + 1) * seq_len; ++first, ++windows) {
          for (std::int64_t i = 0; i < hidden; ++i) {
            bool all = true;
            for (std::int64_t t = first; t < first + w; ++t) all = all && high(t, i);
            common += all ? 1 : 0;
          }
        }
      }
      EXPECT_NEAR(values.common_part(q, w), common / windows / hidden, 1e-12) << q << " " << w;
    }
    std::vector<double> shared(shared_window + 1, 0);
    double windows = 0, runs = 0, length = 0;
    for (std::int64_t s = 0; s < samples; ++s) {
      for (std::int64_t t = s * seq_len; t < (s + 1) * seq_len; ++t) {
        for (std::int64_t i = 0; i < hidden; ++i) {
          length += high(t, i) ? 1 : 0;
          runs += high(t, i) && (t == s * seq_len || !high(t - 1, i)) ? 1 : 0;
        }
        if (t + shared_window > (s + 1) * seq_len) continue;
        ++windows;
        for (std::int64_t i = 0; i < hidden; ++i) {
          std::size_t count = 0;
          for (std::int64_t n = 0; n < shared_window; ++n) count += high(t + n, i) ? 1 : 0;
          shared[count] += 1;
        }
      }
    }
    EXPECT_NEAR(values.run[q], length / runs, 1e-9);
    for (std::size_t n = 0; n < shared.size(); ++n) {
      EXPECT_NEAR(values.shared[q * shared.size() + n], shared[n] / windows, 1e-9);
    }
  }
}

TEST(ActivationSums, ShortSequencesHaveNoLongWindows) {
  ActivationSums sums(1);
  sums.add(std::vector<float>{1, -2, 3}, 3);
  const ActivationFlow::Values values = sums.means({}, false, 1, 3);
  EXPECT_NEAR(values.mean_magnitude(), 14.0 / 3, 1e-12);
  EXPECT_EQ(values.common_part(0, 3), 1);
  EXPECT_TRUE(std::isnan(values.common_part(0, 4)));
  EXPECT_TRUE(std::isnan(values.shared[0]));
  EXPECT_EQ(values.run[0], 3);
  EXPECT_EQ(values.share_of_top(0.5), 1);
}

TEST(ActivationSums, ZerosAreNeverHigh) {
  ActivationSums sums(4);
  sums.add(std::vector<float>(8, 0.0f), 2);
  const ActivationFlow::Values values = sums.means({}, false, 1, 2);
  EXPECT_EQ(values.common_part(3, 1), 0);
  EXPECT_TRUE(std::isnan(values.run[3]));
  EXPECT_EQ(values.share_of_top(0.5), 0.5);  // as if all values were equal
}

TEST(ActivationSums, NumbersThatAreNotFiniteAreRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ActivationSums sums(2);
    expect_failure([&] { sums.add(std::vector<float>{1, bad}, 1); }, "not finite");
  }
}

TEST(ActivationFlow, PartsOfTheDimensionsAreRoundedUp) {
  EXPECT_EQ(dimensions_of(0.1, 30), 3);
  EXPECT_EQ(dimensions_of(0.1, 31), 4);
  EXPECT_EQ(dimensions_of(0.05, 4), 1);
  EXPECT_EQ(dimensions_of(0.5, 4096), 2048);
}

}  // namespace
}  // namespace lyceum
