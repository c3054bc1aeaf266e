#pragma once

#include <atomic>
#include <cstdint>

namespace lyceum {

/// A task that one of a machine's processes does for all of them. It is placed in memory that they share, all zero at
/// first. At most one process finishes it, whatever their timing; time decides only which one.
class SharedTask {
 public:
  /// True if this process is to do the task: no other one began it, or the one that did is gone, or has had it for more
  /// than `patience` seconds and does not finish. False once it is done.
  bool take(double patience);
  /// True if this process still had the task, which is done now. False if another process took it meanwhile.
  bool finish();
  bool done() const;
  /// The process that has or did the task; 0 if there is none, or none that this process can see.
  int process() const;

 private:
  std::atomic<std::uint64_t> state_;  // process space, process, done: 32, 31 and 1 bits
  std::atomic<double> since_;         // when the process took it, by monotonic_seconds()
};

}  // namespace lyceum
