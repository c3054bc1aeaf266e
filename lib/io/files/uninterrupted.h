#pragma once

#include <cerrno>
#include <type_traits>

namespace lyceum {

/// Calls `call`, a system call, again as long as it fails with EINTR, and returns its result. Not to be used for
/// close(), which closes the descriptor even if it is interrupted.
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

}  // namespace lyceum
