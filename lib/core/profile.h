#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <typeinfo>
#include <vector>

namespace lyceum {

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
  /// By "outer/inner" path.
  const std::map<std::string, Entry>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    std::string path;
    Clock::time_point resumed;
  };
  void charge(Clock::time_point now);
  std::vector<Open> open_;
  std::map<std::string, Entry> entries_;
};

/// Times the life of this object; nothing without a profile.
class ProfileScope {
 public:
  ProfileScope(Profile* profile, const char* name) : profile_(profile) {
    if (profile_) profile_->enter(name);
  }
  /// `type` names a kernel description or operation.
  ProfileScope(Profile* profile, const std::type_info& type, const char* suffix = "");
  ~ProfileScope() {
    if (profile_) profile_->leave();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* profile_;
};

}  // namespace lyceum
