#pragma once

#include <algorithm>
#include <span>

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

/// Throws unless every index is in [first, bound); a kernel would read or write somebody else's memory.
template <class Index>
void require_indices(std::string_view kernel, std::string_view name, std::span<const Index> indices, std::int64_t first,
                     std::int64_t bound) {
  Index least = static_cast<Index>(first), largest = static_cast<Index>(first);
#pragma omp simd reduction(min : least) reduction(max : largest)
  for (std::size_t i = 0; i < indices.size(); ++i) {
    least = std::min(least, indices[i]);
    largest = std::max(largest, indices[i]);
  }
  require(indices.empty() || (least >= first && largest < bound), "{}: {} holds {}, outside of [{}, {})", kernel, name,
          least < first ? least : largest, first, bound);
}

}  // namespace lyceum
