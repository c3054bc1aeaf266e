#pragma once

#include <atomic>
#include <cstdint>

namespace lyceum {

/// A task that one process does on behalf of all processes of a machine. The object must be in memory shared by these
/// processes and initially all zero. At most one process completes the task; timing only decides which one.
class SharedTask {
 public:
  /// True if this process is to do the task: it has taken the task already, or no process has, or the process that has
  /// taken it is gone or has had it for more than `patience` seconds. False if another process has it or the task is
  /// done.
  bool take(double patience);
  /// Marks the task as done. False if another process has taken it from this one in the meantime.
  bool finish();
  bool done() const;
  /// Returns the id of the process that has or did the task; 0 if there is none or it is in another PID namespace.
  int process() const;

 private:
  std::atomic<std::uint64_t> state_;  // PID namespace (32 bits), process id (31), done flag (1)
  std::atomic<double> since_;         // when the task was taken, by monotonic_seconds()
};

}  // namespace lyceum
