#include "autograd/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "core/random.h"
#include "kernels/router.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

/// Gates or load may have no gradient. A tally receives the same counts as the load.
TEST(Route, TakesEitherGradientAndFillsItsTally) {
  const Stream& stream = tested_stream();
  const auto random = Philox(3, "logits");
  std::vector<double> values(12 * 5), weights(12 * 2), slopes(static_cast<std::size_t>(3 * load_width(5)));
  std::uint64_t at = 0;
  for (std::vector<double>* numbers : {&values, &weights, &slopes}) {
    for (double& number : *numbers) number = random.normal(at++);
  }
  Route route{.k = 2, .sequences = 3, .seq_len = 4};
  route.tally = {tensor_of(stream, {2, 5}, std::vector<std::int64_t>(10, 100)),
                 tensor_of(stream, {5}, std::vector<double>(5, 7)), tensor_of(stream, {1}, std::vector{2.0})};
  const auto gradient = [&](bool by_gates, bool by_load) {
    Tape tape(stream);
    const Variable logits = tape.leaf(tensor_of(stream, {12, 5}, values));
    const auto [gates, index, load] = tape.apply(route, logits);
    std::vector<Tape::Seed> seeds;
    if (by_gates) seeds.push_back({gates, tensor_of(stream, {12, 2}, weights)});
    if (by_load) seeds.push_back({load, tensor_of(stream, {3, load_width(5)}, slopes)});
    tape.backward(seeds);
    return values_of<double>(stream, tape.gradient(logits));
  };
  const std::vector<double> gates = gradient(true, false), load = gradient(false, true), both = gradient(true, true);
  for (std::size_t i = 0; i < both.size(); ++i) EXPECT_NEAR(both[i], gates[i] + load[i], 1e-14);
  const auto counts = values_of<std::int64_t>(stream, route.tally.counts);
  const auto probability = values_of<double>(stream, route.tally.probability);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.begin() + 5, std::int64_t{0}), 500 + 3 * 12);
  EXPECT_EQ(std::accumulate(counts.begin() + 5, counts.end(), std::int64_t{0}), 500 + 3 * 12);
  EXPECT_NEAR(std::accumulate(probability.begin(), probability.end(), 0.0), 35 + 3 * 12, 1e-12);
  const double entropy = values_of<double>(stream, route.tally.entropy)[0] - 2;
  EXPECT_GT(entropy, 0);
  EXPECT_LT(entropy, 3 * 12 * std::log(5));
}

}  // namespace
}  // namespace lyceum
