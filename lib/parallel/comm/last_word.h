#pragma once

#include <string>

namespace lyceum {

/// Selects one process per machine that reports why the job fails: the first one that asks. The decision is recorded as
/// a file in the folder that the launcher makes for the job on each machine and removes at its end. So it works before
/// MPI is initialised and after the reporting process has ended. Without such a folder every process may report.
class LastWord {
 public:
  LastWord();
  /// True for the first process of the machine that calls it, or if there is no launcher. Creates the file.
  bool take() const;
  /// True once a process of this machine has been selected.
  bool taken() const;

 private:
  std::string file_;  // empty: no launcher
};

}  // namespace lyceum
