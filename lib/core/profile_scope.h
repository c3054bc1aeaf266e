#pragma once

#include <typeinfo>

namespace lyceum {

class Profile;

/// Records the lifetime of this object as a scope in a Profile. Does nothing if `profile` is null.
class ProfileScope {
 public:
  ProfileScope(Profile* profile, const char* name) : profile_(profile) {
    if (profile_) enter(name);
  }
  /// Names the scope by `type`, a kernel description or operation, and `suffix`: "Gemm", "Linear dgrad".
  ProfileScope(Profile* profile, const std::type_info& type, const char* suffix = "") : profile_(profile) {
    if (profile_) enter(type, suffix);
  }
  ~ProfileScope() {
    if (profile_) leave();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  void enter(const char* name);
  void enter(const std::type_info& type, const char* suffix);
  void leave();

  Profile* profile_;
};

}  // namespace lyceum
