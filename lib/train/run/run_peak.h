#pragma once

#include <string>

#include "train/setup/run_setup.h"

namespace lyceum {

/// The peak rate of all ranks together, to which MFU is relative.
struct RunPeak {
  double flops = 0;    // FLOP/s
  std::string source;  // "as specified for NVIDIA H100 80GB HBM3 in bf16", "measured on 2026-11-22 …"
};
/// Collective over the world. Returns the peak. Its number is equal on all ranks; its text is complete on rank 0.
///   1. If all ranks have GPUs of known models, it is the sum of the specified peaks; a GPU that ranks share counts
///      once.
///   2. Otherwise it is the sum of the measured peaks of all machines, each with all cores or GPUs of the job
///      (machine_peak.h). A value that this build measured before on the same cores is read from PeakCache.
///   3. If a machine has no such value, or with `remeasure`, all machines measure at the same time. Values that were
///      read are kept. Only steady measurements are stored, so the next start repeats others.
RunPeak peak_of_run(const RunConfig& run, const RunSetup& setup, bool remeasure);

}  // namespace lyceum
