#pragma once

#include "core/error.h"
#include "kernels/block_diagonal.h"
#include "kernels/checks.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together. Return the map from blocks
// to elements of a row.

template <class T>
BlockElements require_fitting(const BlockDiagonal<T>& product) {
  const std::int64_t b = product.weights.cols;
  require(b > 0 && product.x.cols % b == 0, "BlockDiagonal: rows of {} elements cannot be divided into blocks of {}",
          product.x.cols, b);
  require_extents("BlockDiagonal", "weights", product.weights, product.x.cols, b);
  require_extents("BlockDiagonal", "y", product.y, product.x.rows, product.x.cols);
  return {product.x.cols / b, b, product.order};
}

template <class T>
BlockElements require_fitting(const BlockDiagonalWeightGrad<T>& grad) {
  const std::int64_t b = grad.d_weights.cols;
  require(b > 0 && grad.x.cols % b == 0,
          "BlockDiagonalWeightGrad: rows of {} elements cannot be divided into blocks of {}", grad.x.cols, b);
  require_extents("BlockDiagonalWeightGrad", "dy", grad.dy, grad.x.rows, grad.x.cols);
  require_extents("BlockDiagonalWeightGrad", "d_weights", grad.d_weights, grad.x.cols, b);
  return {grad.x.cols / b, b, grad.order};
}

}  // namespace lyceum
