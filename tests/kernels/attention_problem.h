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

inline constexpr AttentionShape attention_shapes[] = {
    {1, 1, 1, 1, 1, 1},      {2, 7, 7, 3, 3, 5},  {3, 33, 33, 4, 2, 16}, {1, 64, 64, 2, 1, 64},  {2, 65, 65, 2, 2, 33},
    {1, 200, 200, 4, 1, 32}, {2, 5, 70, 2, 1, 8}, {1, 1, 131, 4, 2, 16}, {1, 100, 131, 1, 1, 8},
};

/// Forward and backward by run(description) against the reference in double.
template <class T, class Run>
void expect_right_attention(const AttentionShape& shape, double tolerance, Run&& run) {
  SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.query_len << " of " << shape.key_len << ", "
                                  << shape.heads << "/" << shape.kv_heads << " x " << shape.head_dim);
  const auto fast = make_attention<T>(shape, 3);
  const auto exact = make_attention<double, T>(shape);
  run(fast->forward());
  run(fast->backward());
  const CpuStream stream(2);
  lyceum::run(stream, exact->forward());
  lyceum::run(stream, exact->backward());
  expect_near(fast->out.view(), exact->out.view(), tolerance);
  expect_near(fast->log_sum_exp.view(), exact->log_sum_exp.view(), tolerance);
  expect_near(fast->dq.view(), exact->dq.view(), 2 * tolerance);
  expect_near(fast->dk.view(), exact->dk.view(), 4 * tolerance);
  expect_near(fast->dv.view(), exact->dv.view(), 4 * tolerance);
  for (auto* matrix : {&fast->out, &fast->dq, &fast->dk}) EXPECT_TRUE(matrix->gaps_untouched());
  EXPECT_TRUE(fast->log_sum_exp.gaps_untouched());
}

}  // namespace lyceum::test
