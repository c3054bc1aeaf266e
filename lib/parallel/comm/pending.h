#pragma once

#include <memory>

namespace lyceum {

/// A started operation. The buffers that it was given must live until wait() returned or test() said true. Several may
/// be in flight, and be waited for in any order: waiting for one moves all of them on. The destructor waits, at most
/// the group's timeout, and swallows errors: the next operation on the group reports them. While an exception
/// propagates it does not wait: the operation is aborted, and its group refuses everything from then on.
class [[nodiscard]] Pending {
 public:
  class State;
  Pending();
  explicit Pending(std::unique_ptr<State> state);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// True if it has finished, also on the device; gives the transport a chance to move data.
  bool test();
  /// Work that a stream gets from now on finds its data. Throws an Error that names operation, group and rank when the
  /// group's timeout passes.
  void wait();

 private:
  std::unique_ptr<State> state_;  // null: finished
};

}  // namespace lyceum
