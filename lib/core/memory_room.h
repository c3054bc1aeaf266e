#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lyceum {

/// The physical memory that this process can still get: the least of what the machine and its control groups have left.
/// Pages of files that the kernel can drop count as free, and swap where the process may use it.
class MemoryRoom {
 public:
  /// Bytes for each process that must remain for memory outside of the allocator, which is not checked.
  static constexpr double reserve = 16 << 20;

  /// `sharers`: number of processes that take memory from the same room, as the ranks on a machine do; each is left a
  /// reserve. `root`: the folder that has proc and sys.
  explicit MemoryRoom(int sharers = 1, std::filesystem::path root = "/");

  struct Verdict {
    double needed = 0;  // bytes, with the reserves of all sharers
    double room = 0;    // bytes
    double limit = 0;   // bytes: the limit of the group, or the memory of the machine
    std::string place;  // "this machine", "the control group /job"
    bool fits() const { return needed <= room; }
    std::size_t left() const { return static_cast<std::size_t>(room - needed); }
    /// Returns "the control group /job has 12 MB left of 1000 MB, and 30 MB are needed with a reserve".
    std::string text() const;
  };
  /// Returns the number of processes that share the room.
  int sharers() const { return sharers_; }
  /// Compares what the process needs with the room. What other processes will take is not known. `growth`: bytes that
  /// it is about to write to; `held`: bytes of blocks that it has taken since this was constructed, of which it may not
  /// have written to all yet.
  Verdict check(std::size_t growth, std::size_t held) const;

 private:
  int sharers_;
  std::filesystem::path root_;
  std::optional<double> before_;  // bytes that the process had written to when this was constructed
  std::vector<std::filesystem::path> groups_;
};

}  // namespace lyceum
