#include "parallel/comm/shared_task.h"

#include <unistd.h>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_state.h"

namespace lyceum {
namespace {

constexpr std::uint64_t done_bit = 1;

std::uint64_t state_of_space() { return process_space() << 32; }
std::uint64_t own_state() { return state_of_space() | static_cast<std::uint64_t>(getpid()) << 1; }

int process_in(std::uint64_t state) {
  const bool visible = state >> 32 == state_of_space() >> 32;
  return visible ? static_cast<int>((state & 0xffffffffu) >> 1) : 0;
}

}  // namespace

bool SharedTask::take(double patience) {
  std::uint64_t state = state_;
  if (state & done_bit) return false;
  if (state == own_state()) return true;
  const double now = monotonic_seconds();
  if (state != 0) {
    const int owner = process_in(state);
    const bool gone = owner != 0 && is_gone(process_state(owner));
    if (!gone && now - since_ <= patience) return false;
  }
  // Written before the owner: a process that sees the new owner must not see the time of the previous one.
  since_ = now;
  return state_.compare_exchange_strong(state, own_state());
}

bool SharedTask::finish() {
  std::uint64_t state = own_state();
  return state_.compare_exchange_strong(state, state | done_bit);
}

bool SharedTask::done() const { return state_ & done_bit; }
int SharedTask::process() const { return process_in(state_); }

}  // namespace lyceum
