#pragma once

#include <cstdint>
#include <string>

namespace lyceum {

/// The holder of a run's directory, as recorded in its lock file.
struct LockHolder {
  std::string token;                                      // random, different each time the lock is taken
  std::string host, kernel, pid_namespace, cluster, job;  // kernel: boot id
  std::int64_t pid = 0;
  std::uint64_t pid_start = 0;  // start time of the process, clock ticks since boot
  int restarts = 0;             // of the batch job
  std::int64_t since = 0;       // when the lock was taken, seconds since 1970
};

/// Returns this process as a holder, with a new token.
LockHolder this_process();

/// Returns the text of a lock file.
std::string text_of(const LockHolder& holder);
/// Parses the text of a lock file. If it is invalid, because a crash cut it off, returns a holder with empty fields.
LockHolder parse_holder(const std::string& text);

/// Returns a description for messages: "job 17 on n3 (process 4711), which took it 3m05s ago".
std::string holder_name(const LockHolder& holder);

/// The state of a recorded holder: it holds the lock, it no longer exists, or neither is known.
enum class Life { held, stale, unknown };
/// Judges a holder by its process or its batch job, as RunLock describes. If the result is `unknown`, its time stamp
/// must decide. `self` is this process.
Life life_of(const LockHolder& holder, const LockHolder& self);

}  // namespace lyceum
