#pragma once

#include "config/config.h"
#include "train/run/run_peak.h"

namespace lyceum {

/// How fast all ranks together train, by the seconds that a step takes.
class Throughput {
 public:
  Throughput(const Config& config, const RunPeak& peak);
  double tokens_per_second(double seconds) const { return tokens_ / seconds; }
  /// Share of the peak that the model's arithmetic takes.
  double mfu(double seconds) const { return flops_ / seconds / peak_; }

 private:
  double tokens_, flops_;  // of a step
  double peak_;            // FLOP/s
};

}  // namespace lyceum
