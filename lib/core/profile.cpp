#include "core/profile.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace lyceum {

namespace {

/// "lyceum::Gemm<float, float>" → "Gemm"
std::string short_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         std::free);
  std::string name = demangled ? demangled.get() : type.name();
  name = name.substr(0, name.find('<'));
  const std::size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

}  // namespace

void Profile::charge(Clock::time_point now) {
  if (open_.empty()) return;
  entries_[open_.back().path].seconds += std::chrono::duration<double>(now - open_.back().resumed).count();
}

void Profile::enter(std::string name) {
  const auto now = Clock::now();
  charge(now);
  std::string path = open_.empty() ? std::move(name) : open_.back().path + "/" + name;
  ++entries_[path].calls;
  open_.push_back({std::move(path), now});
}

void Profile::leave() {
  const auto now = Clock::now();
  charge(now);
  open_.pop_back();
  if (!open_.empty()) open_.back().resumed = now;
}

ProfileScope::ProfileScope(Profile* profile, const std::type_info& type, const char* suffix) : profile_(profile) {
  if (profile_) profile_->enter(short_name(type) + suffix);
}

}  // namespace lyceum
