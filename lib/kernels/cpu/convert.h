#pragma once

#include <bit>
#include <cstdint>

#include "core/tensor.h"

namespace lyceum {

/// to = from for `count` elements, rounded to nearest even if the type is narrower.
inline void convert(const bfloat16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
inline void convert(const float* from, bfloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = bfloat16(from[i]);
}
template <class T>
void convert(const T* from, T* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

/// Converts a matrix row by row. Both have the same extents; strides may differ.
template <class From, class To>
void convert(const Matrix<const From>& from, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) convert(from.row(r), to.row(r), from.cols);
}

}  // namespace lyceum
