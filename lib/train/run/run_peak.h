#pragma once

#include <string>

#include "train/setup/run_setup.h"

namespace lyceum {

/// What MFU counts against: FLOP/s of all ranks together, and where the number comes from.
struct RunPeak {
  double flops = 0;
  std::string source;  // "as stated for NVIDIA H100 80GB HBM3", "measured on 2026-11-22 …"
};
/// Collective. For GPUs that are known, what their maker states. Else the sum of what the machines do in matrix
/// products with all cores of the job, or all its GPUs (machine_peak.h): measured the first time that this build
/// runs on these cores, then read from KeptPeaks. It is measured again with `remeasure`, and next time if it was not
/// steady. If one machine has no value, all are measured together, and those that have one keep it.
RunPeak peak_of_run(const RunConfig& run, const RunSetup& setup, bool remeasure);

}  // namespace lyceum
