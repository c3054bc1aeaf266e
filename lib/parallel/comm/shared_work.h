#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>

#include "core/clock.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Lets the ranks of a group do work without messages, on files say, that takes them different times, and more than the
/// group's timeout. Ranks that have finished wait in small reductions, to which those that work come now and then. So a
/// rank that is gone or stuck is still found within the timeout, and one that waits for a file system later: after half
/// an hour without progress.
///
/// Every rank makes one and calls finish(); run() is for ranks that work.
class SharedWork {
 public:
  /// `progress` changes while a function under run() makes progress.
  SharedWork(const ProcessGroup& group, const std::atomic<std::int64_t>& progress);
  /// Calls `action` in a thread, which must send no messages, and tells the others meanwhile that this rank works.
  /// Throws what it throws. If another rank is lost by then, throws that error instead of a call.
  void run(const std::function<void()>& action);
  /// Returns when all ranks have called it. Throws if another rank is lost.
  void finish();

 private:
  void beat();
  bool any_works(bool here);

  const ProcessGroup& group_;
  const std::atomic<std::int64_t>& progress_;
  double interval_;  // seconds between two reductions
  Clock::time_point last_ = Clock::now();
  std::exception_ptr lost_;
};

/// Calls what waits for a file system and returns when that is done: SharedWork::run(), or a plain call.
using RunOnFiles = std::function<void(const std::function<void()>&)>;
inline void run_at_once(const std::function<void()>& action) { action(); }

/// Collective. Calls `action`, which works on files and sends no messages, on every rank, and returns when all have
/// done it: a SharedWork of one call. Throws what the action throws here.
void work_on_files(const ProcessGroup& group, const std::function<void()>& action);
/// Collective. The same with an action of rank 0 alone.
void work_on_files_of_rank_zero(const ProcessGroup& group, const std::function<void()>& action);

}  // namespace lyceum
