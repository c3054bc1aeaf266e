#include "kernels/balance.h"

#include "kernels/router.h"
#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 7, top_k = 2, seq_len = 12;
const std::vector<std::int32_t> order{4, 0, 6, 1, 2, 3, 5};  // devices {4, 0}, {6}, {1, 2, 3, 5}
const std::vector<std::int64_t> first{0, 2, 3, 7};

/// The losses of sequences by the paper's formulas, where rows of counts are sums over `counted`.
struct ExpectedLosses {
  double expert = 0, device = 0, z = 0;
  std::vector<double> expert_slope, device_slope;

  ExpectedLosses(const Grid<double>& count, const Grid<double>& sums, double counted) {
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
    }
  }
};

TEST(BalanceLosses, FollowThePapersFormulas) {
  for (const std::int64_t sequences : {0, 1, 3, 300}) {
    for (const bool batch : {false, true}) {  // one row of counts, seen as every sequence's
      Grid<double> count(sequences, experts, 2), sums = Grid<double>::random(sequences, experts + 1, "sums", 1);
      for (std::int64_t s = 0; s < sequences; ++s) {
        for (std::int64_t i = 0; i < experts; ++i) count(s, i) = static_cast<double>((5 * (batch ? 0 : s) + 3 * i) % 9);
      }
      Matrix<const double> counts = count.matrix();
      if (batch) counts.stride = 0;
      const std::vector<double> count_of(batch ? 1 : 0, 4.0);
      Grid<double> expert_slope(sequences, experts, 3), device_slope(sequences, experts);
      std::vector<double> expert{-7}, device{-7}, z{-7};
      launch_on(1, BalanceLosses{counts, count_of, sums.matrix(), order, first, top_k, seq_len, 0.3, 0.7, 0.9,
                                 expert_slope.matrix(), device_slope.matrix(), expert, device, z});
      const ExpectedLosses expected(count, sums, batch ? 4 : 1);
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
               device = Grid<double>::random(sequences, experts, "device", 2);
    const std::vector<double> two{2}, half{0.5}, three{3};
    for (int there = 0; there < 8; ++there) {
      const auto if_there = [&](int bit, const std::vector<double>& by) {
        return there & bit ? std::span<const double>(by) : std::span<const double>();
      };
      Grid<double> d_load(sequences, load_width(experts), 1);
      launch_on(1, BalanceLossesBackward{expert.matrix(), device.matrix(), 0.1, if_there(1, two), if_there(2, half),
                                         if_there(4, three), d_load.matrix()});
      std::vector<double> expected;
      for (std::int64_t s = 0; s < sequences; ++s) {
        expected.insert(expected.end(), experts, 0.0);
        for (std::int64_t i = 0; i < experts; ++i) {
          expected.push_back((there & 1 ? 2 * expert.at(s, i) : 0) + (there & 2 ? 0.5 * device.at(s, i) : 0));
        }
        expected.push_back(there & 4 ? 3 * 0.1 : 0);
      }
      expect_close(d_load, expected);
    }
  }
}

TEST(BalanceLosses, RefuseWhatDoesNotFit) {
  Grid<double> count(2, experts), sums(2, experts), slope(2, experts);  // sums: a column too few
  std::vector<double> loss(1), z(1);
  EXPECT_THROW(launch_on(1, BalanceLosses{count.matrix(),
                                          {},
                                          sums.matrix(),
                                          order,
                                          first,
                                          top_k,
                                          seq_len,
                                          0.3,
                                          0.7,
                                          0,
                                          slope.matrix(),
                                          slope.matrix(),
                                          loss,
                                          loss,
                                          z}),
               Error);
}

}  // namespace
}  // namespace lyceum
