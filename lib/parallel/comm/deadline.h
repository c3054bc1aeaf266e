#pragma once

#include <functional>
#include <string>
#include <thread>

namespace lyceum {

/// Ends the process unless this object goes first: for calls that nothing else gets back from. After `seconds`, `line`
/// goes to stderr and the process ends with exit code 4 (failed). A process that `reports()` does not allow to print
/// leaves both to the launcher, which ends it because of the process that printed, and ends by itself a minute later.
class Deadline {
 public:
  Deadline(double seconds, std::string line, std::function<bool()> reports = {});

 private:
  std::jthread thread_;  // its end is asked for, and waited for, by the destructor
};

}  // namespace lyceum
