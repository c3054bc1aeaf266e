#pragma once

#include <functional>
#include <memory>

namespace lyceum {

/// A function with a separate stack, which can be suspended and resumed on one thread (a stackful coroutine). It runs
/// from each resume() to its next pause(). Works with AddressSanitizer.
class Fibre {
 public:
  /// `body` must not throw: its stack has no caller that could catch the exception. It starts with the first resume().
  explicit Fibre(std::function<void()> body);
  /// The fibre must have ended or never have been resumed: destructors of objects on its stack are not called.
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Continues the fibre until it calls pause() or ends. Call it from outside the fibre. Throws an Error if it has
  /// ended.
  void resume();
  /// Suspends the fibre: returns from the current resume(). Call it from inside the fibre; it returns at the next
  /// resume().
  void pause();
  /// True once resume() has been called.
  bool started() const;
  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lyceum
