// The peak of a machine does not depend on the number of ranks that share its cores.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/tiny_run.h"
#include "train/run/machine_peak.h"
#include "train/run/peak_cache.h"
#include "train/run/run_peak.h"

namespace lyceum {
namespace {

constexpr double rate_of_core = 100;

std::vector<RankResources> resources_on(const std::vector<std::string>& hosts) {
  std::vector<RankResources> resources;
  for (int rank = 0; rank < test_world().size(); ++rank) {
    resources.push_back({.host = hosts[static_cast<std::size_t>(rank) % hosts.size()],
                         .cores = "0-1",
                         .device = "cpu",
                         .processor = {}});
  }
  return resources;
}

std::vector<MachinePeak> measured(const std::vector<RankResources>& resources, const MeasureWindow& measure) {
  const std::vector<double> limits(resources.size(), 1e9);
  return measure_machines(test_world(), resources, measuring_shares(resources, limits), measure);
}

/// A window on a machine on which nothing else runs.
PeakWindow undisturbed(int threads) {
  return {.flops = rate_of_core * threads, .begin = 7, .end = 8, .core_seconds = static_cast<double>(threads)};
}

TEST(MachinePeakOfRanks, IsThatOfItsCores) {
  for (const MachinePeak& peak : measured(resources_on({"a"}), undisturbed)) {
    EXPECT_EQ(peak.flops(), 2 * rate_of_core);
    EXPECT_TRUE(peak.steady());
  }
}

TEST(MachinePeakOfRanks, IsOfEachHost) {
  const std::vector<RankResources> resources = resources_on({"a", "b"});
  const std::vector<MachinePeak> peaks = measured(resources, undisturbed);
  for (std::size_t rank = 0; rank < resources.size(); ++rank) EXPECT_EQ(peaks[rank].flops(), 2 * rate_of_core);
}

TEST(MachinePeakOfRanks, IsMeasuredAgainUntilItIsSteady) {
  int windows = 0;
  const auto warming = [&](int threads) {
    PeakWindow window = undisturbed(threads);
    window.flops *= std::min(1.0, 0.2 * ++windows);
    return window;
  };
  for (const MachinePeak& peak : measured(resources_on({"a"}), warming)) {
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
  for (const MachinePeak& peak : measured(resources_on({"a"}), disturbed)) EXPECT_FALSE(peak.steady());
}

/// If one machine has no stored value, all are measured, but machines with a stored value keep it.
TEST(MachinePeakOfRanks, IsKeptWhereItIsKnown) {
  const ProcessGroup world = test_world();
  const SharedDirectory cache(world);
  setenv("LYCEUM_CACHE", cache.path().c_str(), 1);
  const auto setup = make_setup(world, {});
  for (int rank = 0; rank < world.size(); ++rank) {
    setup->resources.push_back(
        {.host = fmt::format("n{}", rank), .cores = fmt::format("{}", rank), .device = "cpu", .processor = "P"});
  }
  constexpr double known = 1e30;  // more than any measurement gives
  if (world.rank() == 0) PeakCache("n0").keep("P, 1 core, f32", {.flops = known, .date = "2026-11-22"});
  world.barrier();
  const RunPeak peak = peak_of_run(RunConfig{}, *setup, false);
  EXPECT_DOUBLE_EQ(peak.flops, known);
  EXPECT_THAT(peak.source, testing::StartsWith(world.size() > 1 ? "measured now" : "measured on 2026-11-22"));
  EXPECT_LT(peak_of_run(RunConfig{}, *setup, true).flops, known);
  world.barrier();
  unsetenv("LYCEUM_CACHE");
}

}  // namespace
}  // namespace lyceum
