#include "kernels/balance.h"

#include <cmath>

#include "kernels/router.h"
#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 7, top_k = 2, seq_len = 12;
const std::vector<std::int32_t> order{4, 0, 6, 1, 2, 3, 5};  // devices {4, 0}, {6}, {1, 2, 3, 5}
const std::vector<std::int64_t> first{0, 2, 3, 7};

/// The losses by the formulas of the papers. Each row of count and probability is a sum over `counted` sequences.
struct ExpectedLosses {
  double expert = 0, device = 0, z = 0, information = 0, concentration = 0;
  std::vector<double> expert_slope, device_slope, entropy_slope;

  ExpectedLosses(const Grid<double>& count, const Grid<double>& probability, const Grid<double>& sums, double counted) {
    device_slope.resize(static_cast<std::size_t>(sums.rows * experts));
    for (std::int64_t s = 0; s < sums.rows; ++s) {
      const auto f = [&](std::int64_t i) { return count.at(s, i) / counted * experts / double(top_k * seq_len); };
      const auto p = [&](std::int64_t i) { return sums.at(s, i) / seq_len; };
      for (std::int64_t i = 0; i < experts; ++i) {
        expert += 0.3 * f(i) * p(i);
        expert_slope.push_back(0.3 * f(i) / seq_len);
      }
      for (std::size_t d = 0; d + 1 < first.size(); ++d) {
        const std::span held(order.data() + first[d], order.data() + first[d + 1]);
        double mean_f = 0, sum_p = 0;
        for (const std::int32_t i : held) mean_f += f(i) / static_cast<double>(held.size()), sum_p += p(i);
        device += 0.7 * mean_f * sum_p;
        for (const std::int32_t i : held) {
          device_slope[static_cast<std::size_t>(s * experts + i)] = 0.7 * mean_f / seq_len;
        }
      }
      z += 0.9 * sums.at(s, experts) / seq_len;
      double entropy = 0;
      for (std::int64_t i = 0; i < experts; ++i) {
        const double mean = probability.at(s, i) / (counted * seq_len);
        if (mean > 0) entropy -= mean * std::log(mean);
        entropy_slope.push_back(mean > 0 ? -(std::log(mean) + 1) / seq_len : 0);
      }
      information += 0.4 * (sums.at(s, experts + 1) / seq_len - entropy);
      concentration += 0.6 * entropy;
    }
  }
};

TEST(BalanceLosses, FollowThePapersFormulas) {
  for (const std::int64_t sequences : {0, 1, 3, 300}) {
    for (const bool batch : {false, true}) {  // batch: all sequences have the same counts, the sums over a batch
      Grid<double> count(sequences, experts, 2), sums = Grid<double>::random(sequences, experts + 2, "sums", 1);
      Grid<double> probability(sequences, experts, 4);  // some are zero
      for (std::int64_t s = 0; s < sequences; ++s) {
        for (std::int64_t i = 0; i < experts; ++i) {
          count(s, i) = static_cast<double>((5 * (batch ? 0 : s) + 3 * i) % 9);
          probability(s, i) = static_cast<double>((7 * (batch ? 0 : s) + 2 * i) % 5) / 3;
        }
      }
      Matrix<const double> counts = count.matrix(), probabilities = probability.matrix();
      if (batch) counts.stride = probabilities.stride = 0;
      const std::vector<double> count_of(batch ? 1 : 0, 4.0), choices(batch ? 1 : 0, double(top_k));
      Grid<double> expert_slope(sequences, experts, 3), device_slope(sequences, experts),
          entropy_slope(sequences, experts, 1);
      std::vector<double> expert{-7}, device{-7}, z{-7}, information{-7}, concentration{-7};
      BalanceLosses losses{.count = counts,
                           .probability = probabilities,
                           .count_of = count_of,
                           .sums = sums.matrix(),
                           .order = order,
                           .first = first,
                           .top_k = batch ? 99 : top_k,
                           .seq_len = seq_len,
                           .choices = choices,
                           .expert_factor = 0.3,
                           .device_factor = 0.7,
                           .z_factor = 0.9,
                           .information_factor = 0.4,
                           .concentration_factor = 0.6,
                           .expert_slope = expert_slope.matrix(),
                           .device_slope = device_slope.matrix(),
                           .entropy_slope = entropy_slope.matrix(),
                           .expert_loss = expert,
                           .device_loss = device,
                           .z_loss = z,
                           .information_loss = information,
                           .concentration_loss = concentration};
      launch_on(1, losses);
      const ExpectedLosses expected(count, probability, sums, batch ? 4 : 1);
      EXPECT_NEAR(information[0], expected.information, 1e-11);
      EXPECT_NEAR(concentration[0], expected.concentration, 1e-11);
      expect_close(entropy_slope, expected.entropy_slope);
      losses.probability = {};  // without entropies
      losses.entropy_slope = {};
      losses.information_factor = losses.concentration_factor = 0;
      launch_on(1, losses);
      EXPECT_EQ(information[0], 0);
      EXPECT_EQ(concentration[0], 0);
      EXPECT_NEAR(expert[0], expected.expert, 1e-11);
      EXPECT_NEAR(device[0], expected.device, 1e-11);
      EXPECT_NEAR(z[0], expected.z, 1e-11);
      expect_close(expert_slope, expected.expert_slope);
      expect_close(device_slope, expected.device_slope);
    }
  }
}

TEST(BalanceLosses, BackwardMixesWhatIsThere) {
  for (const std::int64_t sequences : {0, 3, 200}) {
    const auto expert = Grid<double>::random(sequences, experts, "expert", 1),
               device = Grid<double>::random(sequences, experts, "device", 2),
               entropy = Grid<double>::random(sequences, experts, "entropy", 3);
    const std::vector<double> two{2}, half{0.5}, three{3}, four{4}, five{5};
    for (int there = 0; there < 32; ++there) {
      const auto if_there = [&](int bit, const std::vector<double>& by) {
        return there & bit ? std::span<const double>(by) : std::span<const double>();
      };
      Grid<double> d_load(sequences, load_width(experts), 1);
      launch_on(1, BalanceLossesBackward{.expert_slope = expert.matrix(),
                                         .device_slope = device.matrix(),
                                         .entropy_slope = there & 24 ? entropy.matrix() : Matrix<const double>{},
                                         .z_slope = 0.1,
                                         .information_slope = 0.2,
                                         .information_factor = 0.3,
                                         .concentration_factor = 0.6,
                                         .by_expert = if_there(1, two),
                                         .by_device = if_there(2, half),
                                         .by_z = if_there(4, three),
                                         .by_information = if_there(8, four),
                                         .by_concentration = if_there(16, five),
                                         .d_load = d_load.matrix()});
      const double by_mean = (there & 16 ? 5 * 0.6 : 0) - (there & 8 ? 4 * 0.3 : 0);
      std::vector<double> expected;
      for (std::int64_t s = 0; s < sequences; ++s) {
        expected.insert(expected.end(), experts, 0.0);
        for (std::int64_t i = 0; i < experts; ++i) {
          expected.push_back((there & 1 ? 2 * expert.at(s, i) : 0) + (there & 2 ? 0.5 * device.at(s, i) : 0) +
                             by_mean * entropy.at(s, i));
        }
        expected.push_back(there & 4 ? 3 * 0.1 : 0);
        expected.push_back(there & 8 ? 4 * 0.2 : 0);
      }
      expect_close(d_load, expected);
    }
  }
}

TEST(BalanceLosses, RefuseWhatDoesNotFit) {
  Grid<double> count(2, experts), sums(2, experts), slope(2, experts);  // sums should have experts + 2 columns
  std::vector<double> loss(1);
  const BalanceLosses losses{.count = count.matrix(),
                             .probability = {},
                             .count_of = {},
                             .sums = sums.matrix(),
                             .order = order,
                             .first = first,
                             .top_k = top_k,
                             .seq_len = seq_len,
                             .expert_factor = 0.3,
                             .device_factor = 0.7,
                             .z_factor = 0,
                             .information_factor = 0,
                             .concentration_factor = 0,
                             .expert_slope = slope.matrix(),
                             .device_slope = slope.matrix(),
                             .entropy_slope = {},
                             .expert_loss = loss,
                             .device_loss = loss,
                             .z_loss = loss,
                             .information_loss = loss,
                             .concentration_loss = loss};
  EXPECT_THROW(launch_on(1, losses), Error);
}

}  // namespace
}  // namespace lyceum
