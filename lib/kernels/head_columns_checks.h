#pragma once

#include <string_view>

#include "kernels/checks.h"
#include "kernels/head_columns.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together.

/// Throws an Error unless the matrix has `tokens` rows and the columns of all heads. With `separate`, heads must not
/// share columns.
template <class T>
void require_heads(std::string_view kernel, std::string_view name, const HeadColumns<T>& columns, std::int64_t tokens,
                   std::int64_t heads, bool separate) {
  const std::int64_t last = heads > 0 ? columns.first + (heads - 1) * columns.step + columns.cols : 0;
  require(columns.of.rows == tokens && columns.first >= 0 && columns.step >= 0 && columns.cols >= 0 &&
              last <= columns.of.cols,
          "{}: {} is [{}, {}], which does not have {} heads of {} columns from column {} on, {} apart, for {} tokens",
          kernel, name, columns.of.rows, columns.of.cols, heads, columns.cols, columns.first, columns.step, tokens);
  require(!separate || heads <= 1 || columns.step >= columns.cols,
          "{}: heads of {} columns of {} overlap, they are {} apart", kernel, columns.cols, name, columns.step);
}

template <class T>
void require_fitting(const CopyHeads<T>& copy) {
  require_heads("CopyHeads", "from", copy.from, copy.to.of.rows, copy.heads, false);
  require_heads("CopyHeads", "to", copy.to, copy.to.of.rows, copy.heads, true);
  require(copy.from.cols == copy.to.cols, "CopyHeads: heads of {} columns cannot be copied to {} columns",
          copy.from.cols, copy.to.cols);
}

template <class T>
void require_fitting(const SumHeads<T>& sum) {
  require_heads("SumHeads", "from", sum.from, sum.to.rows, sum.heads, false);
  require_extents("SumHeads", "to", sum.to, sum.from.of.rows, sum.from.cols);
}

template <class T>
void require_fitting(const MultiplyHeads<T>& product) {
  const auto& [heads, x, weights, first_row, row_step, transpose, y] = product;
  require_heads("MultiplyHeads", "x", x, y.of.rows, heads, false);
  require_heads("MultiplyHeads", "y", y, y.of.rows, heads, true);
  const std::int64_t rows = transpose ? y.cols : x.cols, cols = transpose ? x.cols : y.cols;
  require(first_row >= 0 && row_step >= 0 && weights.cols == cols &&
              (heads == 0 || first_row + (heads - 1) * row_step + rows <= weights.rows),
          "MultiplyHeads: weights [{}, {}] do not have {} matrices [{}, {}] from row {} on, {} rows apart",
          weights.rows, weights.cols, heads, rows, cols, first_row, row_step);
}

}  // namespace lyceum
