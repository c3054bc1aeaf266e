#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/process_group.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// The work of one rank in a *window*: a period in which all ranks of a machine measure at the same time.
struct PeakWindow {
  double flops = 0;           // FLOPs done
  double begin = 0, end = 0;  // seconds, by a clock that all ranks of a host share
  double core_seconds = 0;    // processor time used; negative if it has no meaning, as on a GPU
};
/// A callback that multiplies matrices with `threads` threads for one window and returns the work. It determines the
/// length of the window, which should be equal on all ranks.
using MeasureWindow = std::function<PeakWindow(int threads)>;

/// The number of threads with which each rank takes part in measuring. On a machine with GPUs, one rank per GPU
/// measures, with one thread. On other machines there is one thread for each core that the job may use, even if ranks
/// share cores.
struct MeasuringShares {
  std::vector<int> threads;     // [ranks]: threads of the rank; 0: it does not measure
  std::vector<int> of_machine;  // [ranks]: the sum of `threads` over the ranks of its host
};
/// Returns the shares of all ranks, by rank. `resources` [ranks]: the machine, cores and device of each rank.
/// `core_limit` [ranks]: core_quota() of each rank.
MeasuringShares measuring_shares(std::span<const RankResources> resources, std::span<const double> core_limit);

/// The measured rate of one machine.
class MachinePeak {
 public:
  /// Adds a window. `ranks`: the work of all ranks of the machine that measured, with `threads` threads altogether. The
  /// rate is the sum of their FLOPs over the time from the first begin to the last end, so that two threads that take
  /// turns on one core do not count twice.
  void add(std::span<const PeakWindow> ranks, int threads);
  /// Returns the rate of the best window in FLOP/s; 0 without windows.
  double flops() const;
  /// True if the best window was undisturbed, that is its workers had their cores to themselves, the second best
  /// undisturbed window is within a few percent of it, and there are at least three of them.
  bool steady() const;

 private:
  std::vector<double> all_, undisturbed_;  // FLOP/s of each window
};

/// Collective over the world. Returns the peak of each rank's machine, by rank. In each window, calls `measure` on the
/// ranks that have threads in `shares`. Ends once all machines are steady, or after 12 windows. `resources`: as for
/// measuring_shares().
std::vector<MachinePeak> measure_machines(const ProcessGroup& world, std::span<const RankResources> resources,
                                          const MeasuringShares& shares, const MeasureWindow& measure);

}  // namespace lyceum
