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
/// Every rank makes one and calls finish(); beat() and run() are for ranks that work.
class SharedWork {
 public:
  /// `progress` changes while a function under run() makes progress.
  SharedWork(const ProcessGroup& group, const std::atomic<std::int64_t>& progress);
  /// To be called several times per timeout of the group. If another rank is lost, finish() reports it.
  void beat();
  /// Calls `action` in a thread, which must send no messages, and beats meanwhile. Throws what it throws.
  void run(const std::function<void()>& action);
  /// Returns when all ranks have called it.
  void finish();

 private:
  bool any_works(bool here);

  const ProcessGroup& group_;
  const std::atomic<std::int64_t>& progress_;
  double interval_;  // seconds between two reductions
  Clock::time_point last_ = Clock::now();
  std::exception_ptr lost_;
};

}  // namespace lyceum
