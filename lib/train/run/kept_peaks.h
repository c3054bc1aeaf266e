#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lyceum {

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
