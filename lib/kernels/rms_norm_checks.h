#pragma once

#include "kernels/checks.h"
#include "kernels/rms_norm.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together.

template <class T>
void require_fitting(const RmsNormForward<T>& norm) {
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_extents("RmsNormForward", "y", norm.y, rows, cols);
  require_length("RmsNormForward", "weight", norm.weight, cols);
  require_length("RmsNormForward", "inverse_rms", norm.inverse_rms, rows);
  const bool residual = norm.added.data != nullptr;  // then `sum` must be set, otherwise empty
  require_extents("RmsNormForward", "added", norm.added, residual ? rows : 0, residual ? cols : 0);
  require_extents("RmsNormForward", "sum", norm.sum, residual ? rows : 0, residual ? cols : 0);
}

template <class T>
void require_fitting(const RmsNormBackward<T>& norm) {
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_extents("RmsNormBackward", "dy", norm.dy, rows, cols);
  require_extents("RmsNormBackward", "dx", norm.dx, rows, cols);
  require_length("RmsNormBackward", "weight", norm.weight, cols);
  require_length("RmsNormBackward", "inverse_rms", norm.inverse_rms, rows);
  if (norm.d_sum.data) require_extents("RmsNormBackward", "d_sum", norm.d_sum, rows, cols);
}

template <class T>
void require_fitting(const RmsNormWeightGrad<T>& norm) {
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_extents("RmsNormWeightGrad", "dy", norm.dy, rows, cols);
  require_length("RmsNormWeightGrad", "inverse_rms", norm.inverse_rms, rows);
  require_length("RmsNormWeightGrad", "d_weight", norm.d_weight, cols);
}

}  // namespace lyceum
