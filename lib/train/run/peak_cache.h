#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lyceum {

/// A cache of the measured peaks of a machine. It is a file in the user's cache folder: $LYCEUM_CACHE, else
/// $XDG_CACHE_HOME/lyceum, else ~/.cache/lyceum. An entry is valid only for the build of the program that measured it.
/// A file that cannot be read is treated as empty; one that cannot be written is left as it is.
class PeakCache {
 public:
  struct Entry {
    double flops = 0;  // FLOP/s
    std::string date;  // date of the measurement, "2026-11-22"
  };
  /// `host`: names the file. `build`: identifies the build; by default that of this program.
  explicit PeakCache(const std::string& host);
  PeakCache(const std::string& host, std::string build);
  /// Returns the entry for `what`, which names the processor, the number of cores or GPUs, and the number type:
  /// "Intel(R) Xeon(R), 2 cores, f32". Empty if this build has not measured it.
  std::optional<Entry> find(const std::string& what) const;
  /// Stores an entry with this build, and replaces an older one. Does nothing if the file cannot be written.
  void keep(const std::string& what, const Entry& entry) const;
  /// Returns the path of the file; empty if the user has no cache folder.
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::string build_;
};

}  // namespace lyceum
