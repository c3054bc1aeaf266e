#pragma once

#include "config/config.h"
#include "train/run/run_peak.h"

namespace lyceum {

/// Converts the duration of a training step to the throughput of all ranks together.
class Throughput {
 public:
  Throughput(const Config& config, const RunPeak& peak);
  double tokens_per_second(double seconds) const { return tokens_ / seconds; }
  /// Returns the model FLOPs utilisation: the model's FLOP/s over the peak.
  double mfu(double seconds) const { return flops_ / seconds / peak_; }

 private:
  double tokens_, flops_;  // per step
  double peak_;            // FLOP/s
};

}  // namespace lyceum
