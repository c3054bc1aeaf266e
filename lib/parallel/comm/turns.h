#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lyceum {

class Profile;

/// Runs two tasks alternately on one thread: when one is about to wait for other ranks, the other continues.
///
/// A turn ends in before_wait(), if the task has called note_start() since its turn began. So turns depend only on the
/// calls of the tasks, not on time. Ranks with the same tasks therefore start their operations in the same order.
class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Runs both tasks to their ends, `first` having the first turn. If one throws, the other is unwound by an exception
  /// at its next turn, and run() rethrows the error. `profile` may be null; each task has its own open scopes in it.
  void run(const std::function<void()>& first, const std::function<void()>& second, Profile* profile = nullptr);
  /// Records that the running task has started an operation that it will wait for.
  void note_start() { started_ = true; }
  /// Ends the turn of the running task, which is about to wait, and returns when its next turn begins. Returns at once
  /// if the task has started nothing since its turn began, or if there is no second task.
  void before_wait();

 private:
  struct Pair;
  void change(Pair& pair);

  Pair* pair_ = nullptr;
  bool started_ = false;  // an operation since the current turn began
};

}  // namespace lyceum
