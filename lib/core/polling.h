#pragma once

namespace lyceum {

/// Waits a short time between two polls of a condition. `waited`: seconds since polling began. Returns at once during
/// the first 20 µs, then yields, and after 20 ms sleeps for 50 µs per call, since there may be more ranks than cores.
void pause_polling(double waited);

/// Receives calls while the host waits for a device, whose work may in turn wait for another rank.
class WaitObserver {
 public:
  /// Called repeatedly. `waited`: seconds since the wait began. May throw, which ends the wait.
  virtual void waiting(double waited) = 0;
  /// Called once when the wait ends normally, if waiting() was called.
  virtual void over() noexcept = 0;

 protected:
  ~WaitObserver() = default;
};

}  // namespace lyceum
