#pragma once

#include <string>

namespace lyceum {

/// Decides which process of a machine reports why the job fails: the first that asks, whatever their timing. The answer
/// is a file in the folder that the launcher has for the job on each machine and removes with it, so it is there before
/// MPI is, and still there when the process that reported has ended. Without such a folder every process may report.
class LastWord {
 public:
  LastWord();
  /// True for one process of the machine.
  bool take() const;
  /// True once a process has the last word.
  bool taken() const;

 private:
  std::string file_;  // empty: no launcher
};

}  // namespace lyceum
