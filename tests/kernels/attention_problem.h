#pragma once

#include <cmath>
#include <memory>

#include "kernels/attention.h"
#include "kernels/matrices.h"

namespace lyceum::test {

/// All matrices of an attention's forward and backward; inputs random, outputs NaN, gaps between rows.
template <class T>
struct AttentionProblem {
  AttentionShape shape;
  double scale;
  OwnedMatrix<T> q, k, v, out, d_out, dq, dk, dv;
  OwnedMatrix<Accumulator<T>> log_sum_exp;

  template <class Like>
  static AttentionProblem* made(const AttentionShape& s, std::int64_t gap) {
    auto* problem = new AttentionProblem(s, gap);
    problem->q.template randomise<Like>("q"), problem->k.template randomise<Like>("k");
    problem->v.template randomise<Like>("v"), problem->d_out.template randomise<Like>("d_out");
    return problem;
  }
  AttentionForward<T> forward() { return {shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.view(), scale}; }
  AttentionBackward<T> backward() {
    return {shape,     q.view(),  k.view(),  v.view(), out.view(), d_out.view(), log_sum_exp.view(),
            dq.view(), dk.view(), dv.view(), scale};
  }

 private:
  AttentionProblem(const AttentionShape& s, std::int64_t gap)
      : shape(s),
        scale(1.0 / std::sqrt(static_cast<double>(s.head_dim))),
        q(s.sequences * s.query_len, s.heads * s.head_dim, gap),
        k(s.sequences * s.key_len, s.kv_heads * s.head_dim, gap),
        v(s.sequences * s.key_len, s.kv_heads * s.head_dim, 2 * gap),
        out(s.sequences * s.query_len, s.heads * s.head_dim, gap),
        d_out(s.sequences * s.query_len, s.heads * s.head_dim, 0),
        dq(s.sequences * s.query_len, s.heads * s.head_dim, gap),
        dk(s.sequences * s.key_len, s.kv_heads * s.head_dim, gap),
        dv(s.sequences * s.key_len, s.kv_heads * s.head_dim, 0),
        log_sum_exp(s.sequences * s.query_len, s.heads, gap) {}
};

template <class T, class Like = T>
std::unique_ptr<AttentionProblem<T>> make_attention(const AttentionShape& shape, std::int64_t gap = 0) {
  return std::unique_ptr<AttentionProblem<T>>(AttentionProblem<T>::template made<Like>(shape, gap));
}

}  // namespace lyceum::test
