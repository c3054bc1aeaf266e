#include "train/run/machine_peak.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/setup/machine.h"

namespace lyceum {
namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

RankResources rank_on(const std::string& host, const std::string& cores, const std::string& device = "cpu") {
  return {.host = host, .cores = cores, .device = device, .processor = {}};
}

MeasuringShares shares(const std::vector<RankResources>& resources, double limit = no_limit) {
  return measuring_shares(resources, std::vector<double>(resources.size(), limit));
}

using Counts = std::vector<int>;

TEST(CoreNumbers, AreThoseOfTheText) {
  EXPECT_EQ(core_numbers("0"), Counts({0}));
  EXPECT_EQ(core_numbers("0-3,8,10-11"), Counts({0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(core_numbers(""), Counts());
}

TEST(MeasuringShares, CountEveryCoreOnceHoweverManyRanksUseIt) {
  EXPECT_EQ(shares({rank_on("a", "0-3")}).threads, Counts({4}));
  EXPECT_EQ(shares({rank_on("a", "0-3"), rank_on("a", "0-3")}).threads, Counts({2, 2}));
  EXPECT_EQ(shares({rank_on("a", "0,1"), rank_on("a", "0,1"), rank_on("a", "0,1"), rank_on("a", "0,1")}).threads,
            Counts({1, 1, 0, 0}));
  EXPECT_EQ(shares(std::vector<RankResources>(256, rank_on("a", "0-1"))).of_machine, Counts(256, 2));
}

TEST(MeasuringShares, FollowBindingOfRanks) {
  EXPECT_EQ(shares({rank_on("a", "0-1"), rank_on("a", "2-3"), rank_on("a", "5")}).threads, Counts({2, 2, 1}));
  EXPECT_EQ(shares({rank_on("a", "0-1"), rank_on("a", "1-2")}).of_machine, Counts({3, 3}));
}

TEST(MeasuringShares, CountHostsApart) {
  const MeasuringShares all =
      shares({rank_on("a", "0-1"), rank_on("b", "0-3"), rank_on("a", "0-1"), rank_on("b", "0-3")});
  EXPECT_EQ(all.threads, Counts({1, 2, 1, 2}));
  EXPECT_EQ(all.of_machine, Counts({2, 4, 2, 4}));
}

TEST(MeasuringShares, StayWithinTheQuotaOfAContainer) {
  EXPECT_EQ(shares({rank_on("a", "0-63")}, 2).threads, Counts({2}));
  EXPECT_EQ(shares({rank_on("a", "0-63"), rank_on("a", "0-63")}, 3.5).of_machine, Counts({3, 3}));
  EXPECT_EQ(shares({rank_on("a", "0-63")}, 0.5).threads, Counts({1}));
  EXPECT_EQ(shares({rank_on("a", "0-1")}, 8).threads, Counts({2}));
}

TEST(MeasuringShares, CountAGpuOnce) {
  EXPECT_EQ(shares({rank_on("a", "0", "cuda:0 X, shared"), rank_on("a", "1", "cuda:0 X, shared"),
                    rank_on("a", "2", "cuda:1 X"), rank_on("b", "2", "cuda:0 X")})
                .threads,
            Counts({1, 0, 1, 1}));
}

PeakWindow window(double flops, double begin, double end, double core_seconds = -1) {
  return {.flops = flops, .begin = begin, .end = end, .core_seconds = core_seconds};
}

TEST(MachinePeak, IsAllWorkOverTheWholeTime) {
  MachinePeak peak;
  EXPECT_EQ(peak.flops(), 0);
  EXPECT_FALSE(peak.steady());
  // Two workers took turns on one core, so each of them measured the full rate of the core.
  peak.add(std::vector{window(100, 0, 1), window(100, 1, 2)}, 2);
  EXPECT_EQ(peak.flops(), 100);
  peak.add(std::vector{window(100, 5, 6), window(110, 5, 6)}, 2);
  EXPECT_EQ(peak.flops(), 210);
}

TEST(MachinePeak, IsSteadyOnceUndisturbedWindowsAgree) {
  MachinePeak peak;
  for (const double flops : {80.0, 100.0}) peak.add(std::vector{window(flops, 0, 1, 0.99)}, 1);
  EXPECT_FALSE(peak.steady()) << "too few windows, and they differ";
  peak.add(std::vector{window(90, 0, 1, 0.99)}, 1);
  EXPECT_FALSE(peak.steady());
  peak.add(std::vector{window(97, 0, 1, 0.99)}, 1);
  EXPECT_TRUE(peak.steady());
  EXPECT_EQ(peak.flops(), 100);
}

TEST(MachinePeak, IsNotSteadyWhereOthersUseTheCores) {
  MachinePeak peak;
  for (int i = 0; i < 12; ++i) peak.add(std::vector{window(50, 0, 1, 0.5), window(50, 0, 1, 0.5)}, 2);
  EXPECT_EQ(peak.flops(), 100);
  EXPECT_FALSE(peak.steady()) << "the same every time, but with half of the cores";
}

TEST(MachinePeak, IgnoresWhatCannotBe) {
  MachinePeak peak;
  for (const PeakWindow& bad : {window(1, 0, 0), window(0, 0, 1), window(std::nan(""), 0, 1), window(1, 1, 0)}) {
    peak.add(std::vector{bad}, 1);
  }
  EXPECT_EQ(peak.flops(), 0);
  EXPECT_FALSE(peak.steady());
}

}  // namespace
}  // namespace lyceum
