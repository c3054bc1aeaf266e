#include "train/setup/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/system_files.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
constexpr double no_limit = std::numeric_limits<double>::infinity();

/// Returns the limit of a control group on processor time, in cores. Version 2 has the file cpu.max, "150000 100000":
/// microseconds of processor time per period, and the period. Version 1 has a file for each; a quota of -1 is no limit.
double cores_in(const fs::path& group) {
  std::ifstream both(group / "cpu.max");
  double quota = 0, period = 0;
  if (both >> quota >> period) return quota / period;
  quota = number_in(group / "cpu.cfs_quota_us"), period = number_in(group / "cpu.cfs_period_us");
  return std::isfinite(quota) && std::isfinite(period) && quota > 0 && period > 0 ? quota / period : no_limit;
}

/// Returns the least limit among the control groups of this process. `limit(folder)` returns the limit of one group.
/// `controller`: as for control_groups().
template <class Limit>
double control_group_limit(const std::string& controller, const Limit& limit) {
  double least = no_limit;
  for (const fs::path& group : control_groups(controller)) least = std::min(least, limit(group));
  return least;
}

double megabytes(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::atof(value) * 1024 * 1024 : 0;
}

/// Returns Slurm's limit on the memory of the job on this node, in bytes. One of the two variables is set if the job
/// requested memory; 0 means all memory of the node [sbatch(1)].
double slurm_limit() {
  const char* cores = std::getenv("SLURM_CPUS_ON_NODE");
  const double bytes =
      std::max(megabytes("SLURM_MEM_PER_NODE"), megabytes("SLURM_MEM_PER_CPU") * (cores ? std::atof(cores) : 0));
  return bytes > 0 ? bytes : no_limit;
}

}  // namespace

CoreSet own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  require(sched_getaffinity(0, sizeof cores, &cores) == 0,
          "cannot determine the cores of this process: set run.threads");
  CoreSet set{.count = CPU_COUNT(&cores), .text = {}};
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &cores)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &cores)) ++last;
    if (!set.text.empty()) set.text += ',';
    set.text += last > first ? fmt::format("{}-{}", first, last) : fmt::format("{}", first);
    first = last;
  }
  return set;
}

double job_memory() {
  const double machine = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::min({machine, control_group_limit("memory", memory_limit), slurm_limit()});
}

double core_quota() { return control_group_limit("cpu", cores_in); }

std::vector<int> core_numbers(const std::string& text) {
  std::vector<int> cores;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const int first = std::stoi(range), last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "cpu";
}

}  // namespace lyceum
