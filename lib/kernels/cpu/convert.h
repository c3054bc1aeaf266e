#pragma once

#include <bit>
#include <cstdint>

#include "core/tensor.h"

namespace lyceum {

/// to = from, rounded to nearest even where the type is narrower; `count` elements.
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

/// The same row by row, whatever the strides.
template <class From, class To>
void convert(const Matrix<const From>& from, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) convert(from.row(r), to.row(r), from.cols);
}

}  // namespace lyceum
