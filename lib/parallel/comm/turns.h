#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lyceum {

class Profile;

/// Two tasks of a rank that take turns on its thread: where one would wait for other ranks, the other goes on.
///
/// A turn ends where a task says that it is about to wait, if it has started something since the turn began. So it
/// depends on the tasks alone, not on time: ranks whose tasks do the same call everything in one order.
class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Runs both to their ends; `first` has the first turn. What one throws ends the other, by an exception at its next
  /// turn, and is thrown from here. `profile` may be null; each task has open scopes of its own in it.
  void run(const std::function<void()>& first, const std::function<void()>& second, Profile* profile = nullptr);
  /// The task that runs has started what it will wait for.
  void note_start() { started_ = true; }
  /// It is about to wait. Returns at its next turn; at once where there are no two tasks.
  void before_wait();

 private:
  struct Pair;
  void change(Pair& pair);

  Pair* pair_ = nullptr;
  bool started_ = false;  // since this turn began
};

}  // namespace lyceum
