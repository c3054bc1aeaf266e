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

/// A clock for a device that works asynchronously. A profile uses it instead of the host's clock: it inserts stamps
/// into the device's queue and reads their times later.
class ProfileClock {
 public:
  virtual ~ProfileClock() = default;
  /// Records a stamp at the current end of the queue and returns its index, counted from 0.
  virtual std::size_t stamp() = 0;
  /// Returns the time of each stamp, in seconds since the first one. Waits for the device. Discards the stamps: the
  /// next one has index 0.
  virtual std::vector<double> times() = 0;
  /// Mark the start and the end of a scope for an external timeline viewer, such as NVTX ranges for Nsight.
  virtual void open(const char* name) = 0;
  virtual void close() = 0;
};

/// One interval in which a scope of a Profile was open and its thread worked on it.
struct ProfileSpan {
  std::string name;           // of the scope, without those around it
  double begin = 0, end = 0;  // seconds on the monotonic clock of the machine (Clock)
};

/// Time spent in nested scopes. Each entry has the seconds spent directly in its scope, without those of inner scopes,
/// so all entries add up to the total. Nothing is timed until a stream is given a profile (set_profile()).
class Profile {
 public:
  struct Entry {
    double seconds = 0;
    std::int64_t calls = 0;
  };
  /// Opens a scope inside the innermost open one. Use ProfileScope.
  void enter(std::string name);
  /// Closes the innermost scope.
  void leave();
  /// Returns the paths of the open scopes, outermost first.
  const std::vector<std::string>& scopes() const { return open_; }
  /// Swaps the open scopes with `other`. Allows a thread to alternate between tasks (Fibre) that each have their own
  /// open scopes.
  void change_scopes(std::vector<std::string>& other);
  /// Returns the entries by path ("outer/inner"). With a device clock, call it only while no scope is open.
  const std::map<std::string, Entry>& entries() {
    settle();
    return entries_;
  }
  /// Starts or stops to record a ProfileSpan for every scope. Call it only while no scope is open.
  void record_spans(bool on) {
    settle();
    records_spans_ = on;
  }
  bool records_spans() const { return records_spans_; }
  /// Returns the recorded spans in the order in which they ended, and removes them. Spans are nested or disjoint. With
  /// a device clock, times are those of the device, whose zero is the host's time when the outermost scope was opened;
  /// the device must have been idle then. Call it only while no scope is open.
  std::vector<ProfileSpan> take_spans() {
    settle();
    return std::exchange(spans_, {});
  }
  /// Removes all entries. Call it only while no scope is open.
  void clear() {
    settle();
    entries_.clear();
  }
  /// Sets the clock; null for the host's. Call it only while no scope is open.
  void set_clock(std::shared_ptr<ProfileClock> clock) {
    settle();
    clock_ = std::move(clock);
  }

 private:
  /// The interval between two stamps of the device's clock, to be added to `entry` once their times are known.
  struct Pending {
    Entry* entry;
    std::size_t from, to;
  };
  /// A span whose times are stamps of the device's clock.
  struct PendingSpan {
    std::string name;
    std::size_t from, to;
  };
  /// The begin of an open scope: a time of the host, or a stamp of the device's clock.
  struct Begin {
    Clock::time_point time;
    std::size_t stamp;
  };
  /// Adds the time since the last call to the innermost scope, by the clock in use.
  void charge();
  /// Reads the times of pending stamps from the device and adds them to their entries.
  void settle();
  /// Record spans: note the begin of the scope `open_.back()` or of several, and the end of the innermost one, at the
  /// time of the last charge().
  void begin_span() { begins_.push_back({resumed_, resumed_stamp_}); }
  void end_span(const std::string& path);

  std::vector<std::string> open_;  // paths
  std::map<std::string, Entry> entries_;
  Clock::time_point resumed_;
  std::size_t resumed_stamp_ = 0;
  std::shared_ptr<ProfileClock> clock_;
  std::vector<Pending> pending_;
  bool records_spans_ = false;
  std::vector<Begin> begins_;  // of the open scopes, if spans are recorded
  std::vector<ProfileSpan> spans_;
  std::vector<PendingSpan> pending_spans_;
  Clock::time_point first_stamp_;  // host time of the device's stamp 0
};

}  // namespace lyceum
