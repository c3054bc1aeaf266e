#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lyceum {

/// Collects the reasons why a configuration is impossible, one line of text each.
class Findings {
 public:
  /// If `advice` is false, texts may lack a remedy.
  explicit Findings(bool advice = true) : advice_(advice) {}

  /// Adds the formatted text unless `fine` is true.
  template <class... Args>
  void unless(bool fine, std::string_view text, const Args&... args) {
    if (!fine) found_.push_back(format_message(text, {MessageArgument(args)...}));
  }
  /// Adds a text if the value is above 0: "KEY = VALUE REASON: set KEY = 0ALTERNATIVE".
  template <class Number>
  void unless_zero(const char* key, Number value, std::string_view reason, std::string_view alternative = "") {
    unless(!(value > 0), "{0} = {1} {2}: set {0} = 0{3}", key, value, reason, alternative);
  }
  /// Returns the remedy that `advise` computes; empty, without a call, if `fine` is true or advice is off.
  template <class Advise>
  std::string advice(bool fine, Advise&& advise) const {
    return fine || !advice_ ? std::string() : advise();
  }
  /// Returns all texts. Call it last.
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
  bool advice_;
};

/// True if d divides n, and also if d < 1, which the check of the key's range reports.
inline bool divides(std::int64_t d, std::int64_t n) { return d < 1 || n % d == 0; }

}  // namespace lyceum
