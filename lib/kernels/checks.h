#pragma once

#include <span>
#include <string_view>

#include "core/error.h"
#include "core/tensor.h"

namespace lyceum {

/// Throws an Error unless `matrix` is [rows, cols]. The message quotes the kernel and the name of the operand.
template <class T>
void require_extents(std::string_view kernel, std::string_view name, const Matrix<T>& matrix, std::int64_t rows,
                     std::int64_t cols) {
  require(matrix.rows == rows && matrix.cols == cols, "{}: {} is [{}, {}], but must be [{}, {}]", kernel, name,
          matrix.rows, matrix.cols, rows, cols);
}

/// Throws an Error unless `parts` is [rows, 2 · width] with width >= cols, as SplitFloat writes it. Returns width.
template <class T>
std::int64_t require_halves(std::string_view kernel, const Matrix<T>& parts, std::int64_t rows, std::int64_t cols) {
  const std::int64_t width = parts.cols / 2;
  require(parts.rows == rows && parts.cols % 2 == 0 && width >= cols,
          "{}: parts [{}, {}] do not match a matrix [{}, {}]", kernel, parts.rows, parts.cols, rows, cols);
  return width;
}

/// Throws an Error unless `values` has `length` elements. The message quotes the kernel and the name of the operand.
template <class T>
void require_length(std::string_view kernel, std::string_view name, std::span<T> values, std::int64_t length) {
  require(static_cast<std::int64_t>(values.size()) == length, "{}: {} has {} elements, but must have {}", kernel, name,
          values.size(), length);
}

}  // namespace lyceum
