#pragma once

#include <span>
#include <string_view>

#include "core/error.h"
#include "core/tensor.h"

namespace lyceum {

/// Throws unless `matrix` has the extents that the kernel `kernel` needs.
template <class T>
void require_extents(std::string_view kernel, std::string_view name, const Matrix<T>& matrix, std::int64_t rows,
                     std::int64_t cols) {
  require(matrix.rows == rows && matrix.cols == cols, "{}: {} is [{}, {}], should be [{}, {}]", kernel, name,
          matrix.rows, matrix.cols, rows, cols);
}

template <class T>
void require_length(std::string_view kernel, std::string_view name, std::span<T> values, std::int64_t length) {
  require(static_cast<std::int64_t>(values.size()) == length, "{}: {} has {} elements, should have {}", kernel, name,
          values.size(), length);
}

}  // namespace lyceum
