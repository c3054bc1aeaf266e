#pragma once

#include <cerrno>
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

}  // namespace lyceum
