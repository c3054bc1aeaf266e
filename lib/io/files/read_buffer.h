#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lyceum {

/// Bytes of the buffer to read an open file by: more than a regular file's own are of no use; `most` elsewhere.
inline std::size_t read_buffer_bytes(int descriptor, std::int64_t most) {
  constexpr std::int64_t fewest = 1 << 12;
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  return static_cast<std::size_t>(regular ? std::clamp<std::int64_t>(status.st_size, fewest, most) : most);
}

}  // namespace lyceum
