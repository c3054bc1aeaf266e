#pragma once

#include <string>
#include <vector>

namespace lyceum {

/// A set of processor cores.
struct CoreSet {
  int count = 0;
  std::string text;  // "0-3,8"
};
/// Returns the cores that this process may run on (its affinity). Throws if they cannot be determined.
CoreSet own_cores();
/// Returns the numbers of the cores in CoreSet::text: {0, 1, 2, 3, 8} for "0-3,8".
std::vector<int> core_numbers(const std::string& text);

/// Returns the processor time that the control groups of this process grant it, in cores: 1.5 means 1.5 seconds of
/// processor time per second. Infinity if they set no limit.
double core_quota();

/// Returns the bytes of memory that the job of this process may use on this machine: the least of the machine's memory,
/// the limits of the control groups, and Slurm's limit.
double job_memory();

/// Returns the model of the processor, "AMD EPYC 9354P 32-Core Processor"; "cpu" if it is unknown.
std::string cpu_name();

}  // namespace lyceum
