#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/attention_checks.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/reference_attention.h"
#include "kernels/cpu/vector_math.h"

namespace lyceum {

namespace {

/// Returns the largest score of each query. Scores of a single query, as in generation, are contiguous, so there is a
/// loop for this case. NaNs are ignored here; they propagate through exponentials().
template <class Products>
PerQuery largest(const Products& products, const Matrix<float>& scores) {
  PerQuery most;
  most.fill(-std::numeric_limits<float>::infinity());
  if (scores.cols == 1) {
    float one = most[0];
#pragma omp simd reduction(max : one)
    for (std::int64_t i = 0; i < scores.rows; ++i) one = scores.data[i] > one ? scores.data[i] : one;
    most[0] = one;
    return most;
  }
  for (std::int64_t i = 0; i < scores.rows; ++i) {
    const float* score = scores.row(i);
    float* found = most.data();
#pragma omp simd
    for (std::int64_t r = products.first_query(i); r < scores.cols; ++r) {
      found[r] = score[r] > found[r] ? score[r] : found[r];
    }
  }
  return most;
}

/// scores = exp(scale · scores - shift). Returns their sum for each query.
template <class Products>
PerQuery exponentials(const Products& products, const Matrix<float>& scores, float scale, const PerQuery& shift) {
  PerQuery sums{};
  if (scores.cols == 1) {
    float* score = scores.data;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < scores.rows; ++i) {
      score[i] = fast_exp(score[i] * scale - shift[0]);
      sum += score[i];
    }
    sums[0] = sum;
    return sums;
  }
  for (std::int64_t i = 0; i < scores.rows; ++i) {
    float *score = scores.row(i), *sum = sums.data();
    const float* less = shift.data();
#pragma omp simd
    for (std::int64_t r = products.first_query(i); r < scores.cols; ++r) {
      score[r] = fast_exp(score[r] * scale - less[r]);
      sum[r] += score[r];
    }
  }
  return sums;
}

template <class T, class E>
class SoftmaxForward {
 public:
  using Element = E;
  SoftmaxForward(const AttentionForward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return ScratchAllocator::bytes<float>(panel_rows, shape.value_cols()) +
           ScratchAllocator::bytes<float>(Panel::most_keys(shape), panel_rows) +
           ScratchAllocator::bytes<E>(Panel::most_keys(shape), panel_rows) +
           ScratchAllocator::bytes<float>(1, Products::scratch(shape.head_dim));
  }

  void operator()(const ForwardPanel<T, E>& panel, int thread, ScratchAllocator scratch) const {
    const auto& [extent, row, head, q, k, v, result] = panel;
    const std::int64_t value_dim = result.cols;
    const Matrix<float> out = scratch.take_padded<float>(extent.rows, value_dim);
    const Matrix<float> scores = scratch.take<float>(extent.keys, Products::width(extent.rows));
    const Matrix<E> room = scratch.take<E>(extent.keys, panel_rows);
    const Products products(multiply_, thread, extent.before, extent.rows,
                            scratch.take<float>(1, Products::scratch(q.cols)).data);
    products.scores(k, q, scores);
    hide_unseen(extent, 0, scores);
    const auto scale = static_cast<float>(attention_.scale);
    PerQuery most = largest(products, scores);
    for (float& each : most) each *= scale;
    const PerQuery sums = exponentials(products, scores, scale, most);
    products.over_keys(rounded(scores, room), v, out, false);
    for (std::int64_t r = 0; r < extent.rows; ++r) {
      const auto query = static_cast<std::size_t>(r);
      attention_.log_sum_exp.row(row + r)[head] = most[query] + std::log(sums[query]);
      if (attention_.largest.data) attention_.largest.row(row + r)[head] = most[query];
      scaled(Matrix<const float>(out.row(r), 1, value_dim), 1.0f / sums[query], result.rows_from(r, 1));
    }
  }

 private:
  using Products = PanelProducts<E>;

  const AttentionForward<T>& attention_;
  const TileGemm& multiply_;
};

/// Computes dv += pᵀ·d_out, dp = d_out·vᵀ, ds = p ∘ (dp - Σ_d d_out·out), dq = scale · ds·k, dk += dsᵀ·q.
template <class T, class E>
class SoftmaxBackward {
 public:
  using Element = E;
  SoftmaxBackward(const AttentionBackward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return ScratchAllocator::bytes<float>(panel_rows, shape.head_dim) +
           2 * ScratchAllocator::bytes<float>(Panel::most_keys(shape), panel_rows) +
           ScratchAllocator::bytes<E>(Panel::most_keys(shape), panel_rows) +
           ScratchAllocator::bytes<float>(1, Products::scratch(shape.widest()));
  }

  void operator()(const BackwardPanel<T, E>& panel, int thread, ScratchAllocator scratch) const {
    const auto& [extent, row, head, q, k, v, d_out, dk, dv, dq] = panel;
    const std::int64_t value_dim = d_out.cols, column = head * value_dim;
    const Matrix<float> dq_sum = scratch.take_padded<float>(extent.rows, dq.cols);
    const Matrix<float> scores = scratch.take<float>(extent.keys, Products::width(extent.rows));
    const Matrix<float> d_scores = scratch.take<float>(scores.rows, scores.cols);
    const Matrix<E> room = scratch.take<E>(extent.keys, panel_rows);
    const Products products(multiply_, thread, extent.before, extent.rows,
                            scratch.take<float>(1, Products::scratch(std::max(q.cols, value_dim))).data);
    products.scores(k, q, scores);
    products.scores(v, d_out, d_scores);
    hide_unseen(extent, 0, scores);
    const auto scale = static_cast<float>(attention_.scale);
    PerQuery log_sums{}, means{};
    for (std::int64_t r = 0; r < extent.rows; ++r) {
      const auto query = static_cast<std::size_t>(r);
      log_sums[query] = attention_.log_sum_exp.row(row + r)[head];
      means[query] = dot(attention_.out.row(row + r) + column, attention_.d_out.row(row + r) + column, value_dim);
    }
    exponentials(products, scores, scale, log_sums);
    softmax_gradient(products, scores, means, d_scores);
    products.over_queries(rounded(scores, room), d_out, dv);
    const Matrix<const E> ds = rounded(d_scores, room);
    products.over_queries(ds, q, dk);
    products.over_keys(ds, k, dq_sum, false);
    scaled(Matrix<const float>(dq_sum), scale, dq);
  }

 private:
  using Products = PanelProducts<E>;

  /// Replaces d_parts = dp by ds = p · (dp - mean).
  static void softmax_gradient(const Products& products, const Matrix<float>& parts, const PerQuery& means,
                               const Matrix<float>& d_parts) {
    for (std::int64_t i = 0; i < parts.rows; ++i) {
      const float *p = parts.row(i), *mean = means.data();
      float* dp = d_parts.row(i);
#pragma omp simd
      for (std::int64_t r = products.first_query(i); r < parts.cols; ++r) dp[r] = p[r] * (dp[r] - mean[r]);
    }
  }

  static float dot(const T* a, const T* b, std::int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
    return sum;
  }

  const AttentionBackward<T>& attention_;
  const TileGemm& multiply_;
};

}  // namespace

template <class T>
void run(const CpuStream& stream, const AttentionForward<T>& attention) {
  require_fitting(attention);
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, attention);
  } else {
    in_bf16<T>(stream, attention.shape) ? attend_forward<SoftmaxForward<T, T>>(stream, attention)
                                        : attend_forward<SoftmaxForward<T, float>>(stream, attention);
  }
}

template <class T>
void run(const CpuStream& stream, const AttentionBackward<T>& attention) {
  require_fitting(attention);
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, attention);
  } else {
    in_bf16<T>(stream, attention.shape) ? attend_backward<SoftmaxBackward<T, T>>(stream, attention)
                                        : attend_backward<SoftmaxBackward<T, float>>(stream, attention);
  }
}

LYCEUM_ATTENTION_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
