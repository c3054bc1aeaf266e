#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace lyceum {

/// Keeps a second job out of a run directory. The file DIRECTORY/LOCK says who holds it, and its time stamp moves on as
/// long as the holder lives; that needs nothing but a file system that all machines see, no two clocks that agree and
/// no lock server. A holder that died without a word is found out by, in this order:
///   1. its process, where it ran under the same kernel: held or stale at once;
///   2. its batch job, where this is a later start of the same one: stale at once;
///   3. its time stamp: stale when it does not move for `silence`.
/// A holder that lives is given `patience` to end: it may be the last of a job that is just dying. One object a job:
/// rank 0 has it.
class RunLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{5000};      // between two moves of the time stamp
    std::chrono::milliseconds silence{20000};  // of the other's time stamp, until it counts as dead
    std::chrono::milliseconds patience{5000};  // with a holder that lives
  };
  /// Makes the directory, and takes it. Throws a usage Error that names host, job and age of a holder that lives on; a
  /// failed one where the directory cannot be written.
  RunLock(const std::filesystem::path& directory, Timing timing);
  explicit RunLock(const std::filesystem::path& directory) : RunLock(directory, Timing{}) {}
  /// Gives it back, and removes the directory again when it made it and nothing was written to it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// What was found in the way and put aside, for the log; empty: nothing.
  const std::string& recovered() const;
  /// Throws when the directory or the file in it was removed, or another job took it, as it may after this process was
  /// suspended for longer than `silence`: nothing must be written to it any more. As the last beat saw it, or by
  /// reading the file now.
  void require_held(bool read_now = false) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
