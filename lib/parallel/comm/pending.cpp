#include "parallel/comm/pending.h"

#include <exception>
#include <utility>

#include "parallel/comm/pending_state.h"

namespace lyceum {

Pending::Pending() = default;
Pending::Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending old = std::move(*this);  // waits for the operation that this object held
  state_ = std::move(other.state_);
  return *this;
}

Pending::~Pending() {
  if (!state_) return;
  try {
    // While an exception propagates, other ranks may never enter the operation, so waiting could hang the job.
    if (std::uncaught_exceptions() > 0 || !mpi_running()) {
      state_->abandon();
      (void)state_.release();  // leaked: MPI may still write into the buffers that it keeps alive
    } else {
      wait();
    }
  } catch (...) {  // wait() has abandoned the operation and marked the group; the next call on it throws
  }
}

bool Pending::test() {
  if (!state_) return true;
  try {
    if (!state_->test()) return false;
  } catch (...) {
    state_->abandon();
    (void)state_.release();  // leaked: MPI may still write into the buffers that it keeps alive
    throw;
  }
  state_.reset();
  return true;
}

void Pending::wait() {
  if (!state_) return;
  try {
    state_->wait();
  } catch (...) {
    state_->abandon();
    (void)state_.release();  // leaked: MPI may still write into the buffers that it keeps alive
    throw;
  }
  state_.reset();
}

}  // namespace lyceum
