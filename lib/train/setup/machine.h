#pragma once

#include <string>
#include <vector>

namespace lyceum {

/// Cores that this process may run on.
struct CoreSet {
  int count = 0;
  std::string text;  // "0-3,8"
};
CoreSet own_cores();
/// {0, 1, 2, 3, 8} of "0-3,8".
std::vector<int> core_numbers(const std::string& text);

/// Cores' worth of time that the control groups of this process grant it; infinity where they do not limit it.
double core_quota();

/// Bytes of memory that this process's job may use on this machine: the machine's own, the limits of its control
/// groups, and what Slurm granted it, whichever is least.
double job_memory();

/// "AMD EPYC 9354P 32-Core Processor"; "cpu" where it is not known.
std::string cpu_name();

}  // namespace lyceum
