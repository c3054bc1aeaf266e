#pragma once

#include <functional>
#include <string>
#include <thread>

namespace lyceum {

/// Ends the process unless the object is destroyed within `seconds`: a limit for calls that cannot be interrupted. On
/// expiry `line` is printed to stderr and the process ends with exit code 4 (failed). If `may_print()` returns false,
/// another process prints and the launcher is expected to end this one; otherwise it ends itself after another minute.
class Deadline {
 public:
  Deadline(double seconds, std::string line, std::function<bool()> may_print = {});

 private:
  std::jthread thread_;  // std::jthread: the destructor requests a stop and joins
};

}  // namespace lyceum
