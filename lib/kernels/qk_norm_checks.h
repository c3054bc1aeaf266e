#pragma once

#include "kernels/checks.h"
#include "kernels/qk_norm.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together.

template <class T>
void require_weights(std::string_view kernel, const QkNormShape& shape, std::span<T> q, std::span<T> k) {
  require_length(kernel, "q_weight", q, shape.query_weights());
  require_length(kernel, "k_weight", k, shape.key_weights());
}

template <class T>
void require_fitting(const QkSquares<T>& norm) {
  const std::int64_t tokens = norm.x.rows;
  require_extents("QkSquares", "x", norm.x, tokens, norm.shape.width());
  require_extents("QkSquares", "sums", norm.sums, tokens, norm.shape.groups());
}

template <class T>
void require_fitting(const QkNormForward<T>& norm) {
  const std::int64_t tokens = norm.x.rows, width = norm.shape.width(), groups = norm.shape.groups();
  require_extents("QkNormForward", "x", norm.x, tokens, width);
  require_extents("QkNormForward", "y", norm.y, tokens, width);
  require_extents("QkNormForward", "squares", norm.squares, tokens, groups);
  require_extents("QkNormForward", "inverse_rms", norm.inverse_rms, tokens, groups);
  require_weights("QkNormForward", norm.shape, norm.q_weight, norm.k_weight);
}

template <class T>
void require_fitting(const QkDots<T>& norm) {
  const std::int64_t tokens = norm.x.rows, width = norm.shape.width();
  require_extents("QkDots", "x", norm.x, tokens, width);
  require_extents("QkDots", "dy", norm.dy, tokens, width);
  require_extents("QkDots", "sums", norm.sums, tokens, norm.shape.groups());
  require_weights("QkDots", norm.shape, norm.q_weight, norm.k_weight);
}

template <class T>
void require_fitting(const QkNormBackward<T>& norm) {
  const std::int64_t tokens = norm.x.rows, width = norm.shape.width(), groups = norm.shape.groups();
  require_extents("QkNormBackward", "x", norm.x, tokens, width);
  require_extents("QkNormBackward", "dy", norm.dy, tokens, width);
  require_extents("QkNormBackward", "dx", norm.dx, tokens, width);
  require_extents("QkNormBackward", "inverse_rms", norm.inverse_rms, tokens, groups);
  require_extents("QkNormBackward", "dots", norm.dots, tokens, groups);
  require_weights("QkNormBackward", norm.shape, norm.q_weight, norm.k_weight);
}

template <class T>
void require_fitting(const QkNormWeightGrad<T>& norm) {
  const std::int64_t tokens = norm.x.rows, width = norm.shape.width();
  require_extents("QkNormWeightGrad", "x", norm.x, tokens, width);
  require_extents("QkNormWeightGrad", "dy", norm.dy, tokens, width);
  require_extents("QkNormWeightGrad", "inverse_rms", norm.inverse_rms, tokens, norm.shape.groups());
  require_length("QkNormWeightGrad", "d_weight", norm.d_weight,
                 norm.of_keys ? norm.shape.key_weights() : norm.shape.query_weights());
}

}  // namespace lyceum
