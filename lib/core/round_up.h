#pragma once

namespace lyceum {

/// The least multiple of `multiple` that is at least `value`, which is not negative.
template <class T>
constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace lyceum
