#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/matrices.h"
#include "kernels/stick_breaking.h"

namespace lyceum::test {

/// All matrices of the forward and backward passes of an attention. Inputs are random, outputs NaN; rows have gaps.
template <class T>
struct AttentionProblem {
  AttentionShape shape;
  double scale;
  OwnedMatrix<T> q, k, v, out, d_out, dq, dk, dv;
  OwnedMatrix<Accumulator<T>> log_sum_exp, largest;
  OwnedMatrix<double> log_rest;
  std::vector<std::int32_t> first_keys{};

  template <class Like>
  static AttentionProblem* made(const AttentionShape& s, std::int64_t gap) {
    auto* problem = new AttentionProblem(s, gap);
    problem->q.template randomise<Like>("q"), problem->k.template randomise<Like>("k");
    problem->v.template randomise<Like>("v"), problem->d_out.template randomise<Like>("d_out");
    return problem;
  }
  AttentionForward<T> forward() {
    return {shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.view(), scale, first_keys, largest.view()};
  }
  AttentionBackward<T> backward() {
    return {shape,     q.view(),  k.view(),  v.view(), out.view(), d_out.view(), log_sum_exp.view(),
            dq.view(), dk.view(), dv.view(), scale,    first_keys};
  }
  StickBreakingForward<T> stick_forward() {
    return {shape, q.view(), k.view(), v.view(), out.view(), log_rest.view(), scale, first_keys};
  }
  StickBreakingBackward<T> stick_backward() {
    return {shape,     q.view(),  k.view(),  v.view(), d_out.view(), log_rest.view(),
            dq.view(), dk.view(), dv.view(), scale,    first_keys};
  }

 private:
  AttentionProblem(const AttentionShape& s, std::int64_t gap)
      : shape(s),
        scale(1.0 / std::sqrt(static_cast<double>(s.head_dim))),
        q(s.sequences * s.query_len, s.heads * s.head_dim, gap),
        k(s.sequences * s.key_len, s.kv_heads * s.head_dim, gap),
        v(s.sequences * s.key_len, s.kv_heads * s.value_cols(), 2 * gap),
        out(s.sequences * s.query_len, s.heads * s.value_cols(), gap),
        d_out(s.sequences * s.query_len, s.heads * s.value_cols(), 0),
        dq(s.sequences * s.query_len, s.heads * s.head_dim, gap),
        dk(s.sequences * s.key_len, s.kv_heads * s.head_dim, gap),
        dv(s.sequences * s.key_len, s.kv_heads * s.value_cols(), 0),
        log_sum_exp(s.sequences * s.query_len, s.heads, gap),
        largest(s.sequences * s.query_len, s.heads, 2 * gap),
        log_rest(s.sequences * s.query_len, s.heads, gap) {}
};

template <class T, class Like = T>
std::unique_ptr<AttentionProblem<T>> make_attention(const AttentionShape& shape, std::int64_t gap = 0) {
  return std::unique_ptr<AttentionProblem<T>>(AttentionProblem<T>::template made<Like>(shape, gap));
}

/// The kinds of attention: the descriptions of their forward and backward for a problem, the matrix that forward keeps
/// for backward, and the approximate size of its numbers.
struct Softmax {
  static constexpr auto forward = [](auto& problem) { return problem.forward(); };
  static constexpr auto backward = [](auto& problem) { return problem.backward(); };
  static constexpr auto kept = [](auto& problem) -> auto& { return problem.log_sum_exp; };
  static double kept_size(const AttentionShape&) { return 1; }
};
struct Sticks {
  static constexpr auto forward = [](auto& problem) { return problem.stick_forward(); };
  static constexpr auto backward = [](auto& problem) { return problem.stick_backward(); };
  static constexpr auto kept = [](auto& problem) -> auto& { return problem.log_rest; };
  static double kept_size(const AttentionShape& shape) { return static_cast<double>(shape.key_len); }
};

using AttentionKinds = testing::Types<Softmax, Sticks>;
struct AttentionKindNames {
  template <class Kind>
  static std::string GetName(int) {
    return std::is_same_v<Kind, Softmax> ? "Softmax" : "Sticks";
  }
};

inline constexpr AttentionShape attention_shapes[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 7, 7, 3, 3, 5},
    {3, 33, 33, 4, 2, 16},
    {1, 64, 64, 2, 1, 64},
    {2, 65, 65, 2, 2, 33},
    {1, 200, 200, 4, 1, 32},
    {2, 5, 70, 2, 1, 8},
    {1, 1, 131, 4, 2, 16},
    {1, 100, 131, 1, 1, 8},
    // Heads of values of another width
    {2, 33, 40, 4, 2, 24, 0, 16},
    {1, 70, 70, 2, 1, 7, 0, 18},
    {1, 1, 90, 4, 1, 36, 0, 33},
};

/// Returns FirstKeys for sequences that consist of documents of 1 to 150 keys; the lengths differ between sequences.
inline std::vector<std::int32_t> documents_in(const AttentionShape& shape) {
  constexpr std::int64_t lengths[] = {37, 1, 5, 64, 2, 150, 20};
  std::vector<std::int32_t> first_keys;
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    std::int64_t begin = 0, document = s;
    for (std::int64_t key = 0; key < shape.key_len; ++key) {
      if (key == begin + lengths[document % 7]) begin = key, ++document;
      if (key >= shape.key_len - shape.query_len) first_keys.push_back(static_cast<std::int32_t>(begin));
    }
  }
  return first_keys;
}

/// Computes forward and backward with run(description) and compares the results with the reference in double.
template <class Kind, class T, class Run>
void expect_right_attention(const AttentionShape& shape, double tolerance, Run&& run,
                            const std::vector<std::int32_t>& first_keys = {}) {
  SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.query_len << " of " << shape.key_len << ", "
                                  << shape.heads << "/" << shape.kv_heads << " x " << shape.head_dim << "/"
                                  << shape.value_cols() << ", window " << shape.window);
  const auto fast = make_attention<T>(shape, 3);
  const auto exact = make_attention<double, T>(shape);
  fast->first_keys = exact->first_keys = first_keys;
  run(Kind::forward(*fast));
  run(Kind::backward(*fast));
  const CpuStream stream(2);
  lyceum::run(stream, Kind::forward(*exact));
  lyceum::run(stream, Kind::backward(*exact));
  expect_near(fast->out.view(), exact->out.view(), tolerance);
  expect_near(Kind::kept(*fast).view(), Kind::kept(*exact).view(), tolerance * Kind::kept_size(shape));
  if constexpr (std::is_same_v<Kind, Softmax>) {
    expect_near(fast->largest.view(), exact->largest.view(), tolerance);
    EXPECT_TRUE(fast->largest.gaps_untouched());
  }
  expect_near(fast->dq.view(), exact->dq.view(), 2 * tolerance);
  expect_near(fast->dk.view(), exact->dk.view(), 4 * tolerance);
  expect_near(fast->dv.view(), exact->dv.view(), 4 * tolerance);
  for (auto* matrix : {&fast->out, &fast->dq, &fast->dk}) EXPECT_TRUE(matrix->gaps_untouched());
  EXPECT_TRUE(Kind::kept(*fast).gaps_untouched());
}

}  // namespace lyceum::test
