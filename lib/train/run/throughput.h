#pragma once

#include "config/config.h"
#include "train/run/run_peak.h"

namespace lyceum {

/// Converts the duration of a training step, in seconds, to the throughput of all ranks together.
class Throughput {
 public:
  Throughput(const Config& config, const RunPeak& peak);
  double tokens_per_second(double seconds) const { return tokens_ / seconds; }
  /// Returns the model FLOPs utilisation, 0 to 1: the FLOP/s of forward and backward, with causal attention and without
  /// recomputation (ModelCounts::causal_flops_per_sequence), over the peak of all ranks.
  double mfu(double seconds) const { return flops_ / seconds / peak_; }

 private:
  double tokens_, flops_;  // per step
  double peak_;            // FLOP/s
};

}  // namespace lyceum
