#pragma once

#include <memory>

namespace lyceum {

/// An operation in flight. Its buffers must live until wait() has returned or test() has returned true. Several
/// operations may be in flight and may be waited for in any order; waiting for one advances all of them.
///
/// The destructor waits (up to the group's timeout) and swallows errors; the next operation on the group reports them.
/// While an exception propagates, the destructor does not wait but abandons the operation. The group is unusable then.
class [[nodiscard]] Pending {
 public:
  class State;
  Pending();
  explicit Pending(std::unique_ptr<State> state);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// True if the operation has finished, on the device too. Advances all operations in flight. Throws if it failed.
  bool test();
  /// Blocks until work that is added to the stream from now on sees the result. Throws an Error with the operation,
  /// group and rank if the operation fails or the group's timeout expires.
  void wait();

 private:
  std::unique_ptr<State> state_;  // null: finished
};

}  // namespace lyceum
