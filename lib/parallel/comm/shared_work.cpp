#include "parallel/comm/shared_work.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <span>

namespace lyceum {
namespace {

constexpr double longest_interval = 10, longest_without_progress = 1800;  // seconds

}  // namespace

SharedWork::SharedWork(const ProcessGroup& group, const std::atomic<std::int64_t>& progress)
    : group_(group), progress_(progress), interval_(std::min(group.timeout() / 4, longest_interval)) {}

bool SharedWork::any_works(bool here) {
  std::int64_t works = here ? 1 : 0;
  group_.all_reduce(std::span(&works, 1), Reduction::max);
  last_ = Clock::now();
  return works != 0;
}

void SharedWork::beat() {
  if (group_.size() == 1 || lost_ || seconds_since(last_) < interval_) return;
  try {
    any_works(true);
  } catch (...) {
    lost_ = std::current_exception();
  }
}

void SharedWork::run(const std::function<void()>& action) {
  if (lost_) std::rethrow_exception(lost_);
  if (group_.size() == 1) return action();
  std::future<void> result = std::async(std::launch::async, action);
  std::int64_t seen = progress_;
  Clock::time_point moved = Clock::now();
  for (;;) {
    const std::chrono::duration<double> rest(lost_ ? interval_ : std::max(interval_ - seconds_since(last_), 0.0));
    if (result.wait_for(rest) == std::future_status::ready) return result.get();
    if (const std::int64_t now = progress_; now != seen) {
      seen = now;
      moved = Clock::now();
    }
    if (seconds_since(moved) > longest_without_progress) return result.get();  // the others will report this rank
    beat();
  }
}

void SharedWork::finish() {
  if (lost_) std::rethrow_exception(lost_);
  while (any_works(false)) {
  }
}

void work_on_files(const ProcessGroup& group, const std::function<void()>& action) {
  const std::atomic<std::int64_t> progress = 0;
  SharedWork work(group, progress);
  work.run(action);
  work.finish();
}

void work_on_files_of_rank_zero(const ProcessGroup& group, const std::function<void()>& action) {
  work_on_files(
      group, group.rank() == 0 ? action : [] {});
}

}  // namespace lyceum
