#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>

#include "core/clock.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Lets the ranks of a group do local work, such as file access, that takes them different times and may exceed the
/// group's timeout. Ranks that have finished wait in a sequence of small reductions, in which the working ranks take
/// part at regular intervals. So a dead or stuck rank is still detected within the timeout. A rank whose work makes no
/// progress for half an hour stops taking part, and is then detected as well.
///
/// Every rank constructs an object and calls finish(). Ranks that have work call run() before.
class SharedWork {
 public:
  /// `progress`: a counter that must change while a function in run() makes progress. The references must outlive the
  /// object.
  SharedWork(const ProcessGroup& group, const std::atomic<std::int64_t>& progress);
  /// Calls `action` in a new thread and waits for it; meanwhile takes part in the reductions. `action` must not send
  /// messages. Rethrows the exception of `action`. If a reduction has failed before the call, throws that error and
  /// does not call `action`.
  void run(const std::function<void()>& action);
  /// Collective. Returns when all ranks have called it. Throws if another rank has failed or is stuck.
  void finish();

 private:
  /// Takes part in the next reduction if `interval_` has passed since the last one. Stores errors in `lost_`.
  void beat();
  /// Collective. True if any rank works; `here`: this one does.
  bool any_works(bool here);

  const ProcessGroup& group_;
  const std::atomic<std::int64_t>& progress_;
  double interval_;  // seconds between two reductions
  Clock::time_point last_ = Clock::now();
  /// The error of a failed reduction.
  std::exception_ptr lost_;
};

/// A function that runs an action which may block on a file system, and returns when it is done: SharedWork::run() or
/// run_at_once().
using RunOnFiles = std::function<void(const std::function<void()>&)>;
inline void run_at_once(const std::function<void()>& action) { action(); }

/// Collective. Calls `action`, which may access files but must not send messages, on every rank, and returns when all
/// ranks have finished it. Rethrows the exception of `action` on this rank. Uses SharedWork without a progress counter,
/// so an action of more than half an hour counts as stuck.
void work_on_files(const ProcessGroup& group, const std::function<void()>& action);
/// Collective. As work_on_files(), but only rank 0 calls `action`.
void work_on_files_of_rank_zero(const ProcessGroup& group, const std::function<void()>& action);

}  // namespace lyceum
