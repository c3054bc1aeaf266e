#include "parallel/comm/turns.h"

#include <exception>
#include <utility>

#include "core/error.h"
#include "core/fibre.h"
#include "core/profile.h"

namespace lyceum {

/// The two tasks: the first runs on the caller's stack, the second in a fibre.
struct Turns::Pair {
  Fibre second;
  const std::exception_ptr& error;  // thrown by the second task
  Profile* profile;
  std::vector<std::string> scopes;  // open scopes of the task that does not run
  bool in_second = false;
  bool alone = false;   // the first task has ended
  bool ending = false;  // the first task has thrown

  void change_scopes() {
    if (profile) profile->change_scopes(scopes);
  }
};

namespace {

/// Thrown in the second task to unwind it after the first has thrown.
struct GivenUp {};

}  // namespace

/// Switches to the other task. Returns when that task switches back or, if it is the second, ends.
void Turns::change(Pair& pair) {
  started_ = false;
  pair.change_scopes();
  if (std::exchange(pair.in_second, !pair.in_second)) return pair.second.pause();
  pair.second.resume();
  if (!pair.second.ended()) return;
  pair.in_second = false;
  pair.change_scopes();
}

void Turns::before_wait() {
  if (!pair_ || !started_) return;
  Pair& pair = *pair_;
  if (pair.in_second) {
    if (pair.alone) return;
    change(pair);
    if (pair.ending) throw GivenUp{};
  } else if (!pair.second.ended()) {
    change(pair);
    if (pair.error) std::rethrow_exception(pair.error);
  }
}

void Turns::run(const std::function<void()>& first, const std::function<void()>& second, Profile* profile) {
  require(!pair_, "two tasks already take turns");
  std::exception_ptr error, error_of_second;
  const auto guarded = [&] {
    try {
      second();
    } catch (const GivenUp&) {
    } catch (...) {
      error_of_second = std::current_exception();
    }
  };
  Pair pair{.second = Fibre(guarded),
            .error = error_of_second,
            .profile = profile,
            .scopes = profile ? profile->scopes() : std::vector<std::string>{}};
  pair_ = &pair;
  started_ = false;
  try {
    first();
  } catch (...) {
    error = std::current_exception();
  }
  // The catch block must end first: a task must not be resumed while another exception is being handled.
  pair.alone = true;
  pair.ending = error != nullptr;
  const bool unfinished = !pair.second.ended() && (!pair.ending || pair.second.started());
  if (unfinished) change(pair);
  pair_ = nullptr;
  if (!error) error = error_of_second;
  if (error) std::rethrow_exception(error);
}

}  // namespace lyceum
