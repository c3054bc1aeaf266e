#include "core/memory_room.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/system_files.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr double mebibyte = 1 << 20;

/// Returns how much of `cached` bytes (files, or reclaimable objects of the kernel) the kernel is likely to drop, as it
/// estimates MemAvailable in /proc/meminfo: it keeps some.
double droppable(double cached) { return cached - std::min(cached / 2, 32 * mebibyte); }

/// Returns the bytes of anonymous memory of this process, in memory or in swap: what it has written to. Nothing if the
/// system does not say, as before Linux 4.5.
std::optional<double> written_memory(const fs::path& root) {
  const std::map<std::string, double> numbers = numbers_in(root / "proc/self/status");
  if (!numbers.contains("RssAnon")) return {};
  return 1024 * (value_of(numbers, "RssAnon") + value_of(numbers, "RssShmem") + value_of(numbers, "VmSwap"));
}

/// The memory that a control group, or the machine, has left, in bytes.
struct Room {
  double bytes = unlimited, limit = unlimited;
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
                droppable(value_of(numbers, prefix + "inactive_file") + value_of(numbers, prefix + "active_file")) +
                droppable(value_of(numbers, "slab_reclaimable"));
  if (second) {
    const double swapped = number_in(group / "memory.swap.current");
    if (std::isfinite(swapped)) room += std::clamp(number_in(group / "memory.swap.max") - swapped, 0.0, free_swap);
  } else {
    // The limit of memory and swap together; without the file, the group does not limit swap.
    const double both =
        number_in(group / "memory.memsw.limit_in_bytes") - number_in(group / "memory.memsw.usage_in_bytes");
    room += std::isnan(both) ? free_swap : std::clamp(both - std::max(0.0, limit - used), 0.0, free_swap);
  }
  return {.bytes = room, .limit = limit};
}

}  // namespace

MemoryRoom::MemoryRoom(int sharers, fs::path root)
    : sharers_(sharers),
      root_(std::move(root)),
      before_(written_memory(root_)),
      groups_(control_groups("memory", root_)) {}

std::string MemoryRoom::Verdict::text() const {
  const auto megabytes = [](double bytes) { return std::llround(std::max(0.0, bytes) / 1e6); };
  return format_message("{} has {} MB left of {} MB, and {} MB are needed with a reserve",
                        {place, megabytes(room), megabytes(limit), megabytes(needed)});
}

MemoryRoom::Verdict MemoryRoom::check(std::size_t growth, std::size_t held) const {
  const std::optional<double> written = written_memory(root_);
  const double unwritten = written && before_ ? std::max(0.0, static_cast<double>(held) + *before_ - *written) : 0;
  Verdict verdict{.needed = static_cast<double>(growth) + unwritten + sharers_ * reserve, .place = "this machine"};
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
