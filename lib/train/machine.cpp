#include "train/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/error.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
constexpr double no_limit = std::numeric_limits<double>::infinity();

/// The number in a control group's file; "max" and absent files limit nothing.
double limit_in(const fs::path& file) {
  std::ifstream stream(file);
  double bytes = 0;
  return stream >> bytes ? bytes : no_limit;
}

/// The least limit of a control group and those around it.
double limit_of_groups(const fs::path& mount, const std::string& group, const char* file) {
  double least = limit_in(mount / file);
  fs::path path = mount;
  for (const fs::path& part : fs::path(group).relative_path()) least = std::min(least, limit_in((path /= part) / file));
  return least;
}

/// [cgroups(7)]: "0::/path" is version 2, "7:memory:/path" version 1.
double control_group_limit() {
  std::ifstream groups("/proc/self/cgroup");
  double least = no_limit;
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, limit_of_groups("/sys/fs/cgroup", group, "memory.max"));
    } else if (controllers == "memory") {
      least = std::min(least, limit_of_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

double megabytes(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::atof(value) * 1024 * 1024 : 0;
}

/// [sbatch(1)]: one of the two is set where memory was asked for; 0 means all of the node.
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
  return std::min({machine, control_group_limit(), slurm_limit()});
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "cpu";
}

}  // namespace lyceum
