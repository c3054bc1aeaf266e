#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/setup/run_setup.h"

namespace lyceum {

/// What MFU counts against: FLOP/s of all ranks together, and where the number comes from.
struct RunPeak {
  double flops = 0;
  std::string source;  // "as stated for NVIDIA H100 80GB HBM3", "measured on 2026-11-22 …"
};
/// Collective. For GPUs that are known, what their maker states. Else the sum of what the machines do in matrix
/// products with all cores of the job, or all its GPUs (train/machine_peak.h): measured the first time that this build
/// runs on these cores, then read from KeptPeaks. It is measured again with `remeasure`, and next time if it was not
/// steady. If one machine has no value, all are measured together, and those that have one keep it.
RunPeak peak_of_run(const RunConfig& run, const RunSetup& setup, bool remeasure);

/// The measured peaks of a machine, in a file of the user's cache folder: $LYCEUM_CACHE, else $XDG_CACHE_HOME/lyceum,
/// else ~/.cache/lyceum. They hold for the program that measured them: another build measures anew. A file that cannot
/// be read or written counts as none.
class KeptPeaks {
 public:
  struct Entry {
    double flops = 0;
    std::string date;  // "2026-11-22"
  };
  /// `host` names the file, `build` the program; by default this one.
  explicit KeptPeaks(const std::string& host);
  KeptPeaks(const std::string& host, std::string build);
  /// `what` names the processor, the number of cores and the type of numbers.
  std::optional<Entry> find(const std::string& what) const;
  void keep(const std::string& what, const Entry& entry) const;
  /// Empty where the user has no cache folder.
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::string build_;
};

}  // namespace lyceum
