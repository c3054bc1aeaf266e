#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/process_group.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// One rank's work in a window of a measurement.
struct PeakWindow {
  double flops = 0;
  double begin = 0, end = 0;  // seconds, by a clock that the ranks of a host share
  double core_seconds = 0;    // processor time; negative if that says nothing, as on a GPU
};
/// Works for a moment with so many threads.
using MeasureWindow = std::function<PeakWindow(int threads)>;

/// The workers that measure the peak of a rank's machine, together as many as the machine has for this job: its cores,
/// once, however many ranks share them, or its GPUs.
struct MeasuringShares {
  std::vector<int> threads;     // of each rank; 0: it does not measure
  std::vector<int> of_machine;  // of each rank: the sum over its host
};
/// `core_limit`: cores of time that each rank's control group grants its host, infinity if it has no limit.
MeasuringShares measuring_shares(std::span<const RankPlace> places, std::span<const double> core_limit);

/// The rate of one machine, from windows in which all of its workers measured at the same time.
class MachinePeak {
 public:
  /// Adds a window of all ranks of the machine that measured, with `threads` in all. The rate is all work over the time
  /// from the first begin to the last end: workers that take turns on a core do not add up.
  void add(std::span<const PeakWindow> ranks, int threads);
  /// The best window's, FLOP/s.
  double flops() const;
  /// True if two windows in which the workers had their cores to themselves agree within a few percent on the best
  /// rate.
  bool steady() const;

 private:
  std::vector<double> all_, undisturbed_;  // FLOP/s of windows
};

/// Collective: the peak of each rank's machine, by rank. Measures until every machine is steady, at most 12 windows.
std::vector<MachinePeak> measure_machines(const ProcessGroup& world, std::span<const RankPlace> places,
                                          const MeasuringShares& shares, const MeasureWindow& measure);

}  // namespace lyceum
