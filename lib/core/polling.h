#pragma once

namespace lyceum {

/// Between two looks at something that is waited for, `waited` seconds so far. Ranks may outnumber cores: comes back at
/// once at first, then lets others run, then sleeps.
void pause_polling(double waited);

/// Notified while the host waits for a device, which may itself wait for another rank.
class WaitObserver {
 public:
  /// `waited`: seconds so far. May throw, which ends the wait.
  virtual void waiting(double waited) = 0;
  /// The wait has ended.
  virtual void over() noexcept = 0;

 protected:
  ~WaitObserver() = default;
};

}  // namespace lyceum
