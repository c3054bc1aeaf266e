#include "core/resident_memory.h"

#include "core/system_files.h"

namespace lyceum {

std::int64_t peak_resident_memory(const std::filesystem::path& root) {
  return 1024 * static_cast<std::int64_t>(value_of(numbers_in(root / "proc/self/status"), "VmHWM"));
}

}  // namespace lyceum
