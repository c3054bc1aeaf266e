#pragma once

#include <chrono>

namespace lyceum {

/// Returns how long to sleep between two polls of a condition after `waited` seconds of polling: 0 during the first
/// 20 ms, then 1/64 of the time waited, between 50 µs and 5 ms. A wait thus ends at most 2 % late, and ranks that wait
/// long leave the cores to the others, since there may be more ranks than cores.
std::chrono::microseconds polling_pause(double waited);

/// Waits between two polls of a condition. `waited`: seconds since polling began. Returns at once during the first
/// 20 µs, then yields, and sleeps as long as polling_pause() says.
void pause_polling(double waited);

/// Receives calls while the host waits for a device, whose work may in turn wait for another rank.
class WaitObserver {
 public:
  /// Called repeatedly. `waited`: seconds since the wait began. May throw, which ends the wait.
  virtual void waiting(double waited) = 0;
  /// Called once when the wait ends normally, if waiting() was called.
  virtual void over() noexcept = 0;
  /// True if the device has no unfinished work that waits for other ranks.
  virtual bool settled() { return true; }

 protected:
  ~WaitObserver() = default;
};

}  // namespace lyceum
