#include "io/data/loader/blend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"

namespace lyceum {
namespace {

/// The published build_blending_indices of Megatron-LM's helpers.cpp.
void megatron_blend(const std::vector<double>& weights, std::int64_t size, std::vector<Blend::Sample>& samples) {
  std::vector<std::int64_t> current_samples(weights.size(), 0);
  for (std::int64_t sample_idx = 0; sample_idx < size; ++sample_idx) {
    const volatile double sample_idx_double = std::max(static_cast<double>(sample_idx), 1.0);
    std::size_t max_error_index = 0;
    volatile double product = weights[0] * sample_idx_double;
    double max_error = product - static_cast<double>(current_samples[0]);
    for (std::size_t dataset_idx = 1; dataset_idx < weights.size(); ++dataset_idx) {
      product = weights[dataset_idx] * sample_idx_double;
      const double error = product - static_cast<double>(current_samples[dataset_idx]);
      if (error > max_error) {
        max_error = error;
        max_error_index = dataset_idx;
      }
    }
    samples.push_back({max_error_index, current_samples[max_error_index]});
    current_samples[max_error_index] += 1;
  }
}

TEST(BlendOf, EqualsMegatrons) {
  // Computed with Python's floats
  const std::string expected = "010200010001020001000102000100010200010001020001001002000100";
  const Blend three({0.7, 0.2, 0.1});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(three.at(static_cast<std::int64_t>(i)).source, static_cast<std::size_t>(expected[i] - '0')) << i;
  }
  const std::vector<double> weights{0.1, 0.35, 0.05, 0.5};
  std::vector<double> normalized = weights;
  for (double& weight : normalized) weight /= std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<Blend::Sample> samples;
  megatron_blend(normalized, 70000, samples);
  const Blend forwards(weights), backwards(weights);
  for (std::int64_t i = 0; i < 70000; ++i) ASSERT_EQ(forwards.at(i), samples[static_cast<std::size_t>(i)]) << i;
  for (const std::int64_t i : {69999, 65536, 65535, 3, 40000}) {
    EXPECT_EQ(backwards.at(i), samples[static_cast<std::size_t>(i)]) << i;
  }
  EXPECT_THROW(Blend({1, 0}), Error);
}

TEST(BlendOf, CountsWhatItHasTaken) {
  const Blend blend({0.1, 0.35, 0.05, 0.5}), other({0.1, 0.35, 0.05, 0.5});
  for (const std::int64_t n : {0, 1, 7, 65535, 65536, 65537, 70000}) {
    std::vector<std::int64_t> expected(4, 0);
    for (std::int64_t i = 0; i < n; ++i) ++expected[other.at(i).source];
    EXPECT_EQ(blend.taken(n), expected) << n;
  }
  EXPECT_THROW(blend.taken(-1), Error);
}

}  // namespace
}  // namespace lyceum
