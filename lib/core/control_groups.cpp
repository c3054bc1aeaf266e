#include "core/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "core/system_files.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// Appends `mount` and the folders below it that lead to `group`.
void add_groups(const fs::path& mount, const std::string& group, std::vector<fs::path>& groups) {
  groups.push_back(mount);
  fs::path path = mount;
  for (const fs::path& part : fs::path(group).relative_path()) groups.push_back(path /= part);
}

}  // namespace

std::vector<fs::path> control_groups(const std::string& controller, const fs::path& root) {
  // A line is "0::/path" for version 2 and "7:memory:/path" for version 1.
  std::ifstream lines(root / "proc/self/cgroup");
  const fs::path mount = root / "sys/fs/cgroup";
  std::vector<fs::path> groups;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      add_groups(mount, group, groups);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      add_groups(mount / controller, group, groups);
    }
  }
  return groups;
}

double memory_limit(const fs::path& group) {
  const double limit = std::min(number_in(group / "memory.max"), number_in(group / "memory.limit_in_bytes"));
  return limit < 0x1p62 ? limit
                        : std::numeric_limits<double>::infinity();  // version 1 rounds "no limit" down to a page
}

}  // namespace lyceum
