#pragma once

#include "kernels/cpu/reference_attention.h"
#include "kernels/logistic.h"
#include "kernels/stick_breaking.h"

namespace lyceum::reference {

/// The stick of one query (see StickBreakingForward): the share β and the part p of each key, and the log of the rest.
template <class T>
struct BrokenStick {
  using Sum = Accumulator<T>;
  std::vector<Sum> share, part;
  double log_rest = 0;

  BrokenStick(const T* query, const Matrix<const T>& keys, Sum scale)
      : share(static_cast<std::size_t>(keys.rows)), part(share) {
    Sum left = 1;
    for (std::int64_t i = keys.rows - 1; i >= 0; --i) {
      Sum score = 0;
      for (std::int64_t d = 0; d < keys.cols; ++d)
        score += static_cast<Sum>(query[d]) * static_cast<Sum>(keys.row(i)[d]);
      score *= scale;
      const auto at = static_cast<std::size_t>(i);
      share[at] = logistic(score);
      part[at] = left * share[at];
      left *= logistic(-score);
      log_rest -= softplus(score);
    }
  }
};

template <class T>
void run(const CpuStream&, const StickBreakingForward<T>& attention) {
  using Sum = Accumulator<T>;
  const std::int64_t dim = attention.shape.head_dim;
  for_each_query(attention, [&](auto head, auto row, auto first, auto seen, auto q_col, auto k_col) {
    const BrokenStick<T> stick(attention.q.row(row) + q_col, attention.k.rows_from(first, seen).cols_from(k_col, dim),
                               static_cast<Sum>(attention.scale));
    attention.log_rest.row(row)[head] = stick.log_rest;
    weighted_sum(stick.part, attention.v.rows_from(first, seen).cols_from(k_col, dim), attention.out.row(row) + q_col);
  });
}

/// Computes, with the parts p and g = d_out·vᵀ: dv = pᵀ·d_out, ds_i = scale · (p_i g_i - β_i Σ_{j <= i} p_j g_j),
/// dq = ds·k, dk = dsᵀ·q.
template <class T>
void run(const CpuStream&, const StickBreakingBackward<T>& attention) {
  using Sum = Accumulator<T>;
  const std::int64_t dim = attention.shape.head_dim;
  const auto scale = static_cast<Sum>(attention.scale);
  QueryGradients<T, StickBreakingBackward<T>> gradients(attention);
  for_each_query(attention, [&](auto, auto row, auto first, auto seen, auto q_col, auto k_col) {
    const BrokenStick<T> stick(attention.q.row(row) + q_col, attention.k.rows_from(first, seen).cols_from(k_col, dim),
                               scale);
    Sum older = 0;
    gradients.add(row, first, seen, q_col, k_col, stick.part, [&](std::size_t i, Sum d_part) {
      older += stick.part[i] * d_part;
      return scale * (stick.part[i] * d_part - stick.share[i] * older);
    });
  });
  gradients.write();
}

}  // namespace lyceum::reference
