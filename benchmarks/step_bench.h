#pragma once

#include <string>
#include <vector>

#include "config/binding.h"
#include "config/check.h"
#include "core/allocator.h"
#include "device_report.h"
#include "model/counts.h"
#include "parallel/comm/mpi_session.h"
#include "step_work.h"
#include "train/run/pinned_gemms.h"

namespace lyceum {

/// Options of measure_steps(), in addition to the configuration.
struct StepBenchOptions {
  int steps = 5;
  std::string json, tokens;  // tokens: prefix of token files; empty: random tokens
  Peaks peaks;               // of one rank's device; 0: not given
};

/// Times of one kernel within an operation, or of the rest of an operation outside its kernels.
struct Kernel {
  std::string name;
  double seconds;  // per step
  std::int64_t calls;
};

/// Results of measure_steps(), as rank 0 prints them.
struct StepBenchResult {
  int ranks = 1;
  DeviceReport device;  // rank 0's
  Peaks peaks;          // of all ranks together
  std::string flops_from, bytes_from, tokens_from;
  double gemm = 0;                           // FLOP/s of the best GEMM in this run, all ranks together
  double seconds = 0, spread = 0, mean = 0;  // of a step without profile: median, (max - min) / median, mean
  double flops = 0, tokens = 0;              // per step
  double profiled = 0;                       // seconds of a step with profile, mean
  std::vector<Phase> phases;                 // rank 0's; they sum to `profiled`
  std::vector<Kernel> kernels;               // rank 0's, slowest first
  GemmPins gemms;                            // algorithms chosen by timing, of all ranks
  MemoryUse memory;                          // of rank 0; peaks since algorithms were chosen
  double planned = 0;                        // maximum bytes in use on rank 0 according to the plan
  double resident = 0, loss = 0, imbalance = 0;
  std::string clocks_first, clocks_last;

  Peaks rank_peaks() const { return {peaks.flops / ranks, peaks.bytes / ranks}; }
  double memory_to_plan() const { return static_cast<double>(memory.total_peak) / planned; }
  /// Returns the share of the profiled step that named phases cover; the rest is between operations.
  double covered() const;
};

/// Trains the resolved `config` for options.steps timed steps, after two warm-up steps and before up to three profiled
/// ones. Collective. Throws an Error if a step makes no update.
StepBenchResult measure_steps(const Config& config, const MpiSession& session, const StepBenchOptions& options);

/// Returns the minimum seconds that `work` takes on a device with these peaks. Bytes are ignored if their peak is 0.
double least_seconds(const Work& work, const Peaks& peaks);

}  // namespace lyceum
