#pragma once

#include <cstdint>
#include <string>

namespace lyceum {

/// Who holds a run's folder, as its lock file says it.
struct LockHolder {
  std::string token;  // of one taking of the lock
  std::string host, kernel, pid_namespace, cluster, job;
  std::int64_t pid = 0;
  std::uint64_t pid_start = 0;
  int restarts = 0;
  std::int64_t since = 0;  // seconds since 1970
};

/// This process, with a new token.
LockHolder this_process();

/// The text of a lock file.
std::string text_of(const LockHolder& holder);
/// A text that cannot be read was cut off by a crash: returns a holder of which nothing is known.
LockHolder parse_holder(const std::string& text);

/// "job 17 on n3 (process 4711), which took it 3m05s ago"
std::string holder_name(const LockHolder& holder);

enum class Life { held, stale, unknown };
/// Judges a holder by its process or its batch job, as RunLock describes; unknown: its time stamp must tell.
Life life_of(const LockHolder& holder, const LockHolder& self);

}  // namespace lyceum
