#pragma once

#include <filesystem>
#include <optional>

namespace lyceum {

/// Bytes of physical memory of this process.
struct ResidentMemory {
  double anonymous = 0;  // heap, stacks, and memory shared between processes
  double files = 0;      // pages of mapped files: program, libraries, token files
  double peak = 0;       // the largest sum of both so far
};
/// Returns the memory of this process; zeros if it is unknown. `root`: the folder that has proc.
ResidentMemory resident_memory(const std::filesystem::path& root = "/");

/// Follows the peak of this process's memory, without the pages of data files that it maps: these grow as data is read,
/// and the system drops them when memory is short.
class ResidentPeak {
 public:
  /// Returns the largest sum of anonymous memory and of the program's pages so far, in bytes. Pages of files that are
  /// mapped after the first call count as data.
  double bytes();
  /// Does the same with given values.
  double bytes(const ResidentMemory& now);

 private:
  std::optional<double> program_;  // ResidentMemory::files at the first call
  double peak_ = 0;
};

}  // namespace lyceum
