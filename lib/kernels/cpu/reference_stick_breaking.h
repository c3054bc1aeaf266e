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
  for_each_query(attention, [&](const QueryAt& at) {
    const BrokenStick<T> stick(attention.q.row(at.row) + at.q_col, keys_of(attention, at),
                               static_cast<Sum>(attention.scale));
    attention.log_rest.row(at.row)[at.head] = stick.log_rest;
    weighted_sum(stick.part, values_of(attention, at), attention.out.row(at.row) + at.out_col);
  });
}

/// Computes, with the parts p and g = d_out·vᵀ: dv = pᵀ·d_out, ds_i = scale · (p_i g_i - β_i Σ_{j <= i} p_j g_j),
/// dq = ds·k, dk = dsᵀ·q.
template <class T>
void run(const CpuStream&, const StickBreakingBackward<T>& attention) {
  using Sum = Accumulator<T>;
  const auto scale = static_cast<Sum>(attention.scale);
  QueryGradients<T, StickBreakingBackward<T>> gradients(attention);
  for_each_query(attention, [&](const QueryAt& at) {
    const BrokenStick<T> stick(attention.q.row(at.row) + at.q_col, keys_of(attention, at), scale);
    Sum older = 0;
    gradients.add(at, stick.part, [&](std::size_t i, Sum d_part) {
      older += stick.part[i] * d_part;
      return scale * (stick.part[i] * d_part - stick.share[i] * older);
    });
  });
  gradients.write();
}

}  // namespace lyceum::reference
