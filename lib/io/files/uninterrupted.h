#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <type_traits>

namespace lyceum {

/// The result of a system call, which is made again while signals interrupt it. Not for close(): there the descriptor
/// is gone in any case.
template <class Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    const bool failed = [&] {
      if constexpr (std::is_pointer_v<std::remove_const_t<decltype(result)>>) {
        return result == nullptr;
      } else {
        return result < 0;
      }
    }();
    if (!failed || errno != EINTR) return result;
  }
}

/// Opens a file for reading, again while signals interrupt that, as the stream itself does not. Where it cannot be
/// opened, the stream is not good() and errno has the reason.
inline std::ifstream open_to_read(const std::filesystem::path& file) {
  std::ifstream stream;
  do {
    errno = 0;
    stream.open(file, std::ios::binary);
  } while (!stream.is_open() && errno == EINTR);
  return stream;
}

}  // namespace lyceum
