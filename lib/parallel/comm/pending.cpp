#include <sched.h>

#include <exception>
#include <thread>

#include "parallel/comm/pending_state.h"
#include "parallel/comm/watch.h"

namespace lyceum {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Ranks may outnumber cores: poll closely at first, then let others run, then sleep between polls.
void pause(double waited) {
  constexpr double spin = 20e-6, yield = 20e-3;
  if (waited < spin) return;
  if (waited < yield) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

Pending::State::State(std::shared_ptr<Communicator> communicator, Operation operation)
    : communicator_(std::move(communicator)), operation_(operation), noted_(communicator_->note(operation)) {
  communicator_->shared()->progress.add(*this);
}

Pending::State::~State() { communicator_->shared()->progress.remove(*this); }

void Pending::State::abandon() {
  communicator_->shared()->progress.remove(*this);
  communicator_->shared()->ledger.wait_for(-1);
  communicator_->mark_broken();
}

void Pending::State::check(int code) const {
  if (code != MPI_SUCCESS) communicator_->mark_broken();
  communicator_->check(code, operation_);
}

bool Pending::State::test() {
  if (!done_) communicator_->shared()->progress.poll();
  if (error_) std::rethrow_exception(error_);
  return done_;
}

bool Pending::State::advance() noexcept {
  try {
    while (!done_) {
      int arrived = 0;
      statuses_.resize(requests_.size());
      const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &arrived, statuses_.data());
      if (code == MPI_SUCCESS && !arrived) return true;
      check_statuses(code);
      requests_.clear();
      expectations_.clear();
      done_ = !next();
    }
    communicator_->shared()->ledger.finish(noted_);
  } catch (...) {
    error_ = std::current_exception();
  }
  return false;
}

void Pending::State::check_statuses(int code) const {
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses_) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR);
    }
  }
  check(code);
  for (const auto& [request, bytes] : expectations_) {
    int received = 0;
    check(MPI_Get_count(&statuses_[request], MPI_BYTE, &received));
    if (received == bytes) continue;
    fail(ExitCode::failed, "{}: rank {} sent {} B where {} B were expected", communicator_->describe(operation_),
         statuses_[request].MPI_SOURCE, received, bytes);
  }
}

void Pending::State::wait() {
  const Clock::time_point begin = Clock::now();
  SharedState& shared = *communicator_->shared();
  shared.ledger.wait_for(noted_);
  while (!test()) {
    const double waited = seconds_since(begin);
    if (waited > communicator_->timeout()) {
      communicator_->fail_timeout(operation_, shared.watch ? shared.watch->verdict() : "");
    }
    if (shared.watch) shared.watch->serve(waited);
    pause(waited);
  }
  shared.ledger.wait_for(-1);
}

Pending::Pending() = default;
Pending::Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending old = std::move(*this);  // waits for what this one held
  state_ = std::move(other.state_);
  return *this;
}

Pending::~Pending() {
  if (!state_) return;
  try {
    // While an error is on its way out the other ranks may never come: end the job rather than wait for them.
    if (std::uncaught_exceptions() > 0 || !mpi_running()) {
      state_->abandon();
      (void)state_.release();  // MPI may still write into what it keeps
    } else {
      wait();
    }
  } catch (...) {  // wait() gave the operation up and told the group; the next call on it throws
  }
}

bool Pending::test() {
  if (!state_) return true;
  try {
    if (!state_->test()) return false;
  } catch (...) {
    state_->abandon();
    (void)state_.release();  // leaked: MPI may still write into what it keeps
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
    (void)state_.release();  // leaked: MPI may still write into what it keeps
    throw;
  }
  state_.reset();
}

}  // namespace lyceum
