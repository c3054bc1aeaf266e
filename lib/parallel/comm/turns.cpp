#include "parallel/comm/turns.h"

#include <exception>
#include <utility>

#include "core/error.h"
#include "core/fibre.h"
#include "core/profile.h"

namespace lyceum {

/// The first task is on the caller's stack, the second one in a fibre.
struct Turns::Pair {
  Fibre second;
  const std::exception_ptr& error;  // of the second
  Profile* profile;
  std::vector<std::string> scopes;  // open ones of the task that waits for its turn
  bool in_second = false;
  bool alone = false;   // the first has ended
  bool ending = false;  // by an error

  void change_scopes() {
    if (profile) profile->change_scopes(scopes);
  }
};

namespace {

/// Takes a task that is given up off its stack.
struct GivenUp {};

}  // namespace

/// From one task to the other, until that changes back or, if it is the second, ends.
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
  require(!pair_, "two tasks take turns already");
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
  // The handler is left first: a task must not be entered while another exception is being handled.
  pair.alone = true;
  pair.ending = error != nullptr;
  const bool unfinished = !pair.second.ended() && (!pair.ending || pair.second.started());
  if (unfinished) change(pair);
  pair_ = nullptr;
  if (!error) error = error_of_second;
  if (error) std::rethrow_exception(error);
}

}  // namespace lyceum
