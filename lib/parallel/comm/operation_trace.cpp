#include "parallel/comm/operation_trace.h"

namespace lyceum {

void OperationTrace::on_start(std::int64_t number, const LedgerEntry& entry) {
  if (paused_) return;
  pending_.emplace(number, operations_.size());
  operations_.push_back({number, entry});
}

void OperationTrace::on_finish(std::int64_t number) {
  const auto found = pending_.find(number);
  if (found == pending_.end()) return;  // it started before this trace
  operations_[found->second].entry.finished = monotonic_seconds();
  pending_.erase(found);
}

void OperationTrace::pause() {
  on_wait(-1);
  paused_ = true;
}

void OperationTrace::on_wait(std::int64_t number) {
  if (current_ && current_->number == number) return;
  const double now = monotonic_seconds();
  if (current_) {
    current_->end = now;
    waits_.push_back(*current_);
    current_.reset();
  }
  if (number >= 0 && !paused_) current_ = Wait{.number = number, .begin = now};
}

}  // namespace lyceum
