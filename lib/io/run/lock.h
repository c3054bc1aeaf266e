#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace lyceum {

/// Locks a run's directory against other jobs. Rank 0 of a job has one object. The file DIRECTORY/LOCK names the
/// holder, which updates the time stamp of the file as long as it lives. This requires only a file system that all
/// machines share: neither synchronised clocks nor a lock server. A holder that has died is detected by, in this order:
/// 1. its process, if it ran under the same kernel: it is known at once if the lock is held or stale;
/// 2. its batch job, if this is a later start of the same job: the lock is stale at once;
/// 3. its time stamp: the lock is stale if it does not change for `silence`.
///
/// If the holder lives, the object waits up to `patience` for it to end: it may be the last process of a job that is
/// ending.
class RunLock {
 public:
  /// Times of the protocol; tests use shorter ones.
  struct Timing {
    std::chrono::milliseconds beat{5000};      // interval of updates of the time stamp
    std::chrono::milliseconds silence{20000};  // time without an update after which a holder counts as dead
    std::chrono::milliseconds patience{5000};  // time to wait for a holder that lives
  };
  /// Creates the directory if it is missing, and takes the lock. Throws a usage Error that names host, job and age of a
  /// holder that does not end, and a failed Error if the directory cannot be written.
  RunLock(const std::filesystem::path& directory, Timing timing);
  explicit RunLock(const std::filesystem::path& directory) : RunLock(directory, Timing{}) {}
  /// Releases the lock. Removes the directories that the constructor created, as far as nothing was written to them.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Returns a message about the stale lock that was replaced, for the log; empty if there was none.
  const std::string& recovered() const;
  /// Throws a failed Error if the directory or the lock file was removed, or if another job has taken the lock, for
  /// example while this process was suspended for longer than `silence`. The caller must not write to the directory any
  /// more. Checks the state at the last update of the time stamp or, if `read_now`, reads the file.
  void require_held(bool read_now = false) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
