#pragma once

#include <string>
#include <thread>

namespace lyceum {

/// Ends the process unless this object goes first: for calls that nothing else gets back from. After `seconds`, `line`
/// goes to stderr and the process ends with exit code 4 (failed).
class Deadline {
 public:
  Deadline(double seconds, std::string line);

 private:
  std::jthread thread_;  // its end is asked for, and waited for, by the destructor
};

}  // namespace lyceum
