#pragma once

namespace lyceum {

/// Returns the smallest multiple of `multiple` that is at least `value`. `value` ≥ 0.
template <class T>
constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace lyceum
