#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lyceum {

/// Collects what makes a configuration impossible, one line of text each.
class Findings {
 public:
  /// Without `advice`, texts may lack what to set instead.
  explicit Findings(bool advice = true) : advice_(advice) {}

  template <class... Args>
  void unless(bool fine, std::string_view text, const Args&... args) {
    if (!fine) found_.push_back(format_message(text, {MessageArgument(args)...}));
  }
  /// Refuses a value above 0: "KEY = VALUE REASON: set KEY = 0ALTERNATIVE".
  template <class Number>
  void unless_zero(const char* key, Number value, std::string_view reason, std::string_view alternative = "") {
    unless(!(value > 0), "{0} = {1} {2}: set {0} = 0{3}", key, value, reason, alternative);
  }
  /// Returns what to set instead, as `advise` says; calls it only if it is needed.
  template <class Advise>
  std::string advice(bool fine, Advise&& advise) const {
    return fine || !advice_ ? std::string() : advise();
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
  bool advice_;
};

/// True if n splits into d equal parts, and for a d below 1, which the key's own range refuses.
inline bool divides(std::int64_t d, std::int64_t n) { return d < 1 || n % d == 0; }

}  // namespace lyceum
