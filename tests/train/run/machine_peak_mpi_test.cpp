// The peak of a machine does not depend on the number of ranks that share its cores.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/tested_world.h"
#include "train/run/machine_peak.h"

namespace lyceum {
namespace {

constexpr double rate_of_core = 100;

std::vector<RankPlace> places_on(const std::vector<std::string>& hosts) {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < test_world().size(); ++rank) {
    places.push_back({.host = hosts[static_cast<std::size_t>(rank) % hosts.size()],
                      .cores = "0-1",
                      .device = "cpu",
                      .processor = {}});
  }
  return places;
}

std::vector<MachinePeak> measured(const std::vector<RankPlace>& places, const MeasureWindow& measure) {
  const std::vector<double> limits(places.size(), 1e9);
  return measure_machines(test_world(), places, measuring_shares(places, limits), measure);
}

/// A machine with two cores that nothing disturbs.
PeakWindow undisturbed(int threads) {
  return {.flops = rate_of_core * threads, .begin = 7, .end = 8, .core_seconds = static_cast<double>(threads)};
}

TEST(MachinePeakOfRanks, IsThatOfItsCores) {
  for (const MachinePeak& peak : measured(places_on({"a"}), undisturbed)) {
    EXPECT_EQ(peak.flops(), 2 * rate_of_core);
    EXPECT_TRUE(peak.steady());
  }
}

TEST(MachinePeakOfRanks, IsOfEachHost) {
  const std::vector<RankPlace> places = places_on({"a", "b"});
  const std::vector<MachinePeak> peaks = measured(places, undisturbed);
  for (std::size_t rank = 0; rank < places.size(); ++rank) EXPECT_EQ(peaks[rank].flops(), 2 * rate_of_core);
}

TEST(MachinePeakOfRanks, IsMeasuredAgainUntilItIsSteady) {
  int windows = 0;
  const auto warming = [&](int threads) {
    PeakWindow window = undisturbed(threads);
    window.flops *= std::min(1.0, 0.2 * ++windows);
    return window;
  };
  for (const MachinePeak& peak : measured(places_on({"a"}), warming)) {
    EXPECT_EQ(peak.flops(), 2 * rate_of_core);
    EXPECT_TRUE(peak.steady());
  }
}

TEST(MachinePeakOfRanks, EndsOnABusyMachine) {
  const auto disturbed = [](int threads) {
    PeakWindow window = undisturbed(threads);
    window.core_seconds /= 2;
    return window;
  };
  for (const MachinePeak& peak : measured(places_on({"a"}), disturbed)) EXPECT_FALSE(peak.steady());
}

}  // namespace
}  // namespace lyceum
