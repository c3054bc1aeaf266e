#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/profile_scope.h"

namespace lyceum {

/// What a profile reads the time from, where that is not the host's clock: a device that works behind the host's back
/// stamps its own queue, and knows the times when it has come that far.
class ProfileClock {
 public:
  virtual ~ProfileClock() = default;
  /// Notes the present place in the queue; the stamps count from 0 on.
  virtual std::size_t stamp() = 0;
  /// Seconds of every stamp since the last call, from the first one of them on. Waits for the device; counting starts
  /// anew.
  virtual std::vector<double> times() = 0;
  /// A scope opens or closes: for a timeline that some other program draws.
  virtual void open(const char* name) = 0;
  virtual void close() = 0;
};

/// Where the time of a step went: seconds spent directly in each scope, scopes within it not counted, so that all
/// entries sum to the whole. Off until somebody gives a stream one.
class Profile {
 public:
  struct Entry {
    double seconds = 0;
    std::int64_t calls = 0;
  };
  void enter(std::string name);
  void leave();
  /// Paths of the scopes that are open, from the outermost on.
  const std::vector<std::string>& scopes() const { return open_; }
  /// From now on `other` are the open scopes, and `other` is what was open: what a thread does by turns has scopes of
  /// its own.
  void change_scopes(std::vector<std::string>& other);
  /// By "outer/inner" path. Not within a scope where a device keeps the time.
  const std::map<std::string, Entry>& entries() {
    settle();
    return entries_;
  }
  void clear() {
    settle();
    entries_.clear();
  }
  /// Null for the host's clock. Not within a scope.
  void set_clock(std::shared_ptr<ProfileClock> clock) {
    settle();
    clock_ = std::move(clock);
  }

 private:
  /// Between two stamps of the device's clock the scope of `entry` was the innermost one.
  struct Pending {
    Entry* entry;
    std::size_t from, to;
  };
  /// The present moment by whichever clock; time since the last one is charged to the innermost scope.
  void charge();
  void settle();

  std::vector<std::string> open_;  // paths
  std::map<std::string, Entry> entries_;
  Clock::time_point resumed_;
  std::size_t resumed_stamp_ = 0;
  std::shared_ptr<ProfileClock> clock_;
  std::vector<Pending> pending_;
};

}  // namespace lyceum
