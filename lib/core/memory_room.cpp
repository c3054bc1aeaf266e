#include "core/memory_room.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
constexpr double no_limit = std::numeric_limits<double>::infinity();
constexpr double mebibyte = 1 << 20;

/// Appends `mount` and the folders below it that lead to `group`.
void add_groups(const fs::path& mount, const std::string& group, std::vector<fs::path>& groups) {
  groups.push_back(mount);
  fs::path path = mount;
  for (const fs::path& part : fs::path(group).relative_path()) groups.push_back(path /= part);
}

/// Returns the numbers of a file with lines "name value …", by name without a colon; a unit after the value is ignored.
std::map<std::string, double> numbers_in(const fs::path& file) {
  std::ifstream stream(file);
  std::map<std::string, double> numbers;
  std::string name, rest;
  for (double value = 0; stream >> name; std::getline(stream, rest)) {
    if (!(stream >> value)) {
      stream.clear();
      continue;
    }
    if (name.ends_with(':')) name.pop_back();
    numbers[name] = value;
  }
  return numbers;
}

double value_of(const std::map<std::string, double>& numbers, const std::string& name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

/// Returns how much of `files` bytes of cached files the kernel is likely to drop, as it estimates MemAvailable in
/// /proc/meminfo: it keeps some.
double droppable(double files) { return files - std::min(files / 2, 32 * mebibyte); }

/// What a control group, or the machine, has left.
struct Room {
  double bytes = no_limit, limit = no_limit;
};

/// Returns the room of the machine, and sets `swap` to the bytes of swap that are free.
Room room_of_machine(const fs::path& root, double& swap) {
  const std::map<std::string, double> numbers = numbers_in(root / "proc/meminfo");
  swap = value_of(numbers, "SwapFree") * 1024;
  if (!numbers.contains("MemAvailable")) return {};
  return {.bytes = value_of(numbers, "MemAvailable") * 1024 + swap, .limit = value_of(numbers, "MemTotal") * 1024};
}

Room room_of_group(const fs::path& group, double free_swap) {
  const double limit = memory_limit(group);
  if (!std::isfinite(limit)) return {};
  const bool second = fs::exists(group / "memory.current");  // version 2
  const double used = number_in(group / (second ? "memory.current" : "memory.usage_in_bytes"));
  if (!std::isfinite(used)) return {};
  const std::map<std::string, double> numbers = numbers_in(group / "memory.stat");
  const std::string prefix = second ? "" : "total_";
  double room = limit - used +
                droppable(value_of(numbers, prefix + "inactive_file") + value_of(numbers, prefix + "active_file"));
  if (second) {
    const double swapped = number_in(group / "memory.swap.current");
    if (std::isfinite(swapped)) room += std::clamp(number_in(group / "memory.swap.max") - swapped, 0.0, free_swap);
  } else {
    // The limit of memory and swap together; without the file, the group does not limit swap.
    const double both = number_in(group / "memory.memsw.limit_in_bytes") - number_in(group / "memory.memsw.usage_in_bytes");
    room += std::isnan(both) ? free_swap : std::clamp(both - std::max(0.0, limit - used), 0.0, free_swap);
  }
  return {.bytes = room, .limit = limit};
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

double number_in(const fs::path& file) {
  std::ifstream stream(file);
  double number = 0;
  return stream >> number ? number : no_limit;
}

double memory_limit(const fs::path& group) {
  const double limit = std::min(number_in(group / "memory.max"), number_in(group / "memory.limit_in_bytes"));
  return limit < 0x1p62 ? limit : no_limit;  // version 1 rounds "no limit" down to a page
}

ResidentMemory resident_memory(const fs::path& root) {
  const std::map<std::string, double> numbers = numbers_in(root / "proc/self/status");
  const auto bytes = [&](const char* name) { return value_of(numbers, name) * 1024; };
  return {.anonymous = bytes("RssAnon") + bytes("RssShmem"), .files = bytes("RssFile"), .peak = bytes("VmHWM")};
}

MemoryRoom::MemoryRoom(int sharers, fs::path root)
    : sharers_(sharers),
      root_(std::move(root)),
      before_(resident_memory(root_).anonymous),
      groups_(control_groups("memory", root_)) {}

std::string MemoryRoom::Verdict::text() const {
  const auto megabytes = [](double bytes) { return static_cast<std::int64_t>(std::max(0.0, bytes) / 1e6); };
  return format_message("{} has {} MB left of {} MB", {place, megabytes(room), megabytes(limit)});
}

MemoryRoom::Verdict MemoryRoom::check(std::size_t growth, std::size_t held) const {
  constexpr double margin = 16 * mebibyte;  // for memory outside of the allocator, which is not checked
  const double unwritten =
      std::max(0.0, static_cast<double>(held) + before_ - resident_memory(root_).anonymous);
  Verdict verdict{.needed = sharers_ * (static_cast<double>(growth) + unwritten + margin), .place = "this machine"};
  double swap = 0;
  Room least = room_of_machine(root_, swap);
  for (const fs::path& group : groups_) {
    const Room room = room_of_group(group, swap);
    if (room.bytes >= least.bytes) continue;
    least = room;
    verdict.place = format_message("the control group {}", {group.string()});
  }
  verdict.room = std::min(least.bytes, 1e18);
  verdict.limit = least.limit;
  return verdict;
}

}  // namespace lyceum
