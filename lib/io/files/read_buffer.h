#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lyceum {

/// Returns a suitable buffer size in bytes for reading an open file: at most `most`, and for a small regular file no
/// more than its size (but at least 4 KiB).
inline std::size_t read_buffer_bytes(int descriptor, std::int64_t most) {
  constexpr std::int64_t fewest = 1 << 12;
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  return static_cast<std::size_t>(regular ? std::clamp<std::int64_t>(status.st_size, fewest, most) : most);
}

}  // namespace lyceum
