#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.h"

namespace lyceum::test {

/// A folder with files of /proc and /sys, for code that reads them below a given root.
class FakeSystem {
 public:
  /// `group`: the lines of /proc/self/cgroup. The process has 10 MB of anonymous memory, the machine 64 GB.
  explicit FakeSystem(const std::string& group) {
    write("proc/self/cgroup", group);
    write("proc/meminfo", "MemTotal: 64000000 kB\nMemFree: 100 kB\nMemAvailable: 50000000 kB\nSwapFree: 0 kB\n");
    resident(10000);
  }
  const std::filesystem::path& root() const { return directory_.path(); }
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  /// Sets the anonymous memory of the process in kB, and how much it has in swap.
  void resident(int kilobytes, int swapped = 0) const {
    write("proc/self/status", "Name:\tlyceum\nUmask:\t0022\nVmHWM:\t " + std::to_string(kilobytes + 3000) +
                                  " kB\nRssAnon:\t " + std::to_string(kilobytes) +
                                  " kB\nRssFile:\t 3000 kB\nRssShmem:\t 0 kB\nVmSwap:\t " + std::to_string(swapped) +
                                  " kB\n");
  }
  /// Writes a control group of version 1 in MB: its limit, what is used, and how much of that is cached files.
  void group_of_version_1(const std::string& name, int limit, int used, int files) const {
    const std::string folder = "sys/fs/cgroup/memory" + name + "/";
    write(folder + "memory.limit_in_bytes", megabytes(limit));
    write(folder + "memory.usage_in_bytes", megabytes(used));
    write(folder + "memory.stat",
          "cache 1\ninactive_file 1\ntotal_inactive_file " + megabytes(files) + "\ntotal_active_file 0\n");
  }
  /// Does the same for version 2.
  void group_of_version_2(const std::string& name, int limit, int used, int files) const {
    const std::string folder = "sys/fs/cgroup" + name + "/";
    write(folder + "memory.max", megabytes(limit));
    write(folder + "memory.current", megabytes(used));
    write(folder + "memory.stat", "anon 1\nfile 1\ninactive_file 0\nactive_file " + megabytes(files) + "\n");
  }

 private:
  static std::string megabytes(int number) { return std::to_string(number) + "000000"; }

  TemporaryDirectory directory_;
};

}  // namespace lyceum::test
