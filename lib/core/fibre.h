#pragma once

#include <functional>
#include <memory>

namespace lyceum {

/// A function with a stack of its own, which a thread enters and leaves half-way: it runs from a resume() to its next
/// pause(), and in between its thread does other things. Sanitizers know of it.
class Fibre {
 public:
  /// `body` must not throw: nobody is above it.
  explicit Fibre(std::function<void()> body);
  /// It has ended or was never resumed; what else lay on its stack would be lost.
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// From outside, unless it has ended: goes on within, and returns when that pauses or ends.
  void resume();
  /// From within: goes on outside, and returns when it is resumed.
  void pause();
  bool started() const;
  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lyceum
