#pragma once

#include <functional>
#include <string>
#include <thread>

namespace lyceum {

/// Ends the process unless the object is destroyed within `seconds`: a limit for calls that cannot be interrupted. On
/// expiry, a thread prints `line` to stderr and ends the process with exit code 4 (failed). If `may_print` is set and
/// returns false, another process prints: this one prints nothing and leaves the launcher a minute to end it before it
/// ends itself.
class Deadline {
 public:
  Deadline(double seconds, std::string line, std::function<bool()> may_print = {});

 private:
  std::jthread thread_;  // std::jthread: the destructor requests a stop and joins
};

}  // namespace lyceum
