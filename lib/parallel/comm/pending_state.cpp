#include "parallel/comm/pending_state.h"

#include <utility>

#include "core/clock.h"
#include "core/polling.h"
#include "kernels/digest.h"
#include "parallel/comm/chunks.h"
#include "parallel/comm/watch.h"

namespace lyceum {

void wait_until(const std::function<bool()>& reached, const Communicator& communicator, const Operation& operation) {
  const Clock::time_point begin = Clock::now();
  Watch* const watch = communicator.shared()->watch.get();
  while (!reached()) {
    const double waited = seconds_since(begin);
    if (waited > communicator.timeout())
      communicator.fail_timeout(operation, watch ? watch->find_cause() : Watch::Finding{});
    if (watch) watch->serve(waited);
    pause_polling(waited);
  }
}

Pending::State::State(std::shared_ptr<Communicator> communicator, Operation operation)
    : communicator_(std::move(communicator)), operation_(operation), noted_(communicator_->note(operation)) {
  communicator_->shared()->progress.add(*this);
}

Pending::State::~State() { communicator_->shared()->progress.remove(*this); }

void Pending::State::abandon() {
  SharedState& shared = *communicator_->shared();
  shared.progress.remove(*this);
  shared.ledger.wait_for(-1);
  communicator_->mark_broken();
  shared.progress.give_up();
}

bool Pending::State::advance_all() {
  communicator_->shared()->progress.poll();
  if (error_) std::rethrow_exception(error_);
  return done_;
}

void Pending::State::finish_for_caller() {
  if (then_) std::exchange(then_, nullptr)();
}

bool Pending::State::test() {
  if (!advance_all() || !ended()) return false;
  finish_for_caller();
  return true;
}

bool Pending::State::advance() noexcept {
  try {
    if (!step()) return true;
    done_ = true;
    finish();
  } catch (...) {
    error_ = std::current_exception();
  }
  return false;
}

void Pending::State::finish() { communicator_->shared()->ledger.finish(noted_); }

void Pending::State::wait() {
  Ledger& ledger = communicator_->shared()->ledger;
  ledger.wait_for(noted_);
  wait_until([this] { return advance_all(); }, *communicator_, operation_);
  ledger.wait_for(-1);
  finish_for_caller();
}

void Messages::check(int code) const {
  if (code != MPI_SUCCESS) communicator().mark_broken();
  communicator().check(code, operation());
}

void Messages::receive_message(void* to, int bytes, int from, int tag) {
  check(MPI_Irecv(to, bytes, MPI_BYTE, from, tag, communicator().handle(), request()));
  expectations_.push_back({requests_.size() - 1, bytes});
}

void Messages::send_message(const void* from, int bytes, int to, int tag) {
  check(MPI_Isend(from, bytes, MPI_BYTE, to, tag, communicator().handle(), request()));
}

// Messages between two ranks with one tag keep their order, so a checksum arrives directly after its data.
void Messages::receive(void* to, std::int64_t bytes, int from, int tag) {
  if (bytes == 0) return receive_message(to, 0, from, tag);
  for_chunks(bytes, [&](std::int64_t first, int count) {
    std::byte* const chunk = static_cast<std::byte*>(to) + first;
    receive_message(chunk, count, from, tag);
    if (!communicator().shared()->checksums) return;
    checksums_.push_back({.data = chunk, .bytes = static_cast<std::size_t>(count), .from = from});
    receive_message(&checksums_.back().value, sizeof(Checksum::value), from, tag);
  });
}

void Messages::send(const void* from, std::int64_t bytes, int to, int tag) {
  communicator().shared()->sent_messages += messages_of(bytes);
  if (bytes == 0) return send_message(from, 0, to, tag);
  for_chunks(bytes, [&](std::int64_t first, int count) {
    const std::byte* const chunk = static_cast<const std::byte*>(from) + first;
    send_message(chunk, count, to, tag);
    if (!communicator().shared()->checksums) return;
    checksums_.push_back({.value = digest_of_bytes(chunk, static_cast<std::size_t>(count))});
    send_message(&checksums_.back().value, sizeof(Checksum::value), to, tag);
  });
}

void Messages::check_checksums() const {
  for (const Checksum& checksum : checksums_) {
    if (!checksum.data || digest_of_bytes(checksum.data, checksum.bytes) == checksum.value) continue;
    const int from = communicator().members()[static_cast<std::size_t>(checksum.from)];
    fail(ExitCode::failed,
         "{}: {} B from rank {} of the job were corrupted: possible memory or network fault; "
         "no checkpoint is affected: run the same command again",
         communicator().describe(operation()), checksum.bytes, from);
  }
}

bool Messages::step() {
  do {
    int arrived = 0;
    statuses_.resize(requests_.size());
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &arrived, statuses_.data());
    if (code == MPI_SUCCESS && !arrived) return false;
    check_statuses(code);
    check_checksums();
    requests_.clear();
    expectations_.clear();
    checksums_.clear();
  } while (next());
  return true;
}

void Messages::check_statuses(int code) const {
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
    fail(ExitCode::failed, "{}: rank {} sent {} B where {} B were expected", communicator().describe(operation()),
         statuses_[request].MPI_SOURCE, received, bytes);
  }
}

}  // namespace lyceum
