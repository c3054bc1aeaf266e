#include "core/resident_memory.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/system_files.h"

namespace lyceum {

ResidentMemory resident_memory(const std::filesystem::path& root) {
  const std::map<std::string, double> numbers = numbers_in(root / "proc/self/status");
  const auto bytes = [&](const char* name) { return value_of(numbers, name) * 1024; };
  return {.anonymous = bytes("RssAnon") + bytes("RssShmem"), .files = bytes("RssFile"), .peak = bytes("VmHWM")};
}

double ResidentPeak::bytes() { return bytes(resident_memory()); }

double ResidentPeak::bytes(const ResidentMemory& now) {
  if (!program_) program_ = now.files;
  peak_ = std::max(peak_, now.peak - std::max(0.0, now.files - *program_));
  return peak_;
}

}  // namespace lyceum
