#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/round_up.h"
#include "kernels/attention_check.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/reference_attention.h"
#include "kernels/cpu/vector_math.h"

namespace lyceum {

namespace {

/// Rows of scores are padded to the next multiple of this, so that their loops have no scalar rest.
constexpr std::int64_t lanes = 16;
constexpr std::int64_t padded(std::int64_t keys) { return round_up(keys, lanes); }

/// Minus infinity for the keys that row r of a panel does not see, whose probability so comes out as zero.
void mask(const Panel& place, std::int64_t r, const Matrix<float>& scores) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  float* row = scores.row(r);
  std::fill(row, row + place.begin(r), nothing);
  std::fill(row + place.end(r), row + scores.stride, nothing);
}

/// `count` is a multiple of `lanes`. A NaN is ignored here and comes out of the exponentials.
float largest(const float* scores, std::int64_t count) {
  float most = -std::numeric_limits<float>::infinity();
  count = count / lanes * lanes;
#pragma omp simd reduction(max : most)
  for (std::int64_t j = 0; j < count; ++j) most = scores[j] > most ? scores[j] : most;
  return most;
}

/// scores = exp(scale · scores - shift); `count` is a multiple of `lanes`.
void exponentials(float* scores, std::int64_t count, float scale, float shift) {
  count = count / lanes * lanes;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) scores[j] = fast_exp(scores[j] * scale - shift);
}

float sum_of(const float* values, std::int64_t count) {
  float sum = 0;
  count = count / lanes * lanes;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < count; ++j) sum += values[j];
  return sum;
}

template <class T, class E>
class SoftmaxForward {
 public:
  using Element = E;
  SoftmaxForward(const AttentionForward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return Carver::bytes<float>(panel_rows, shape.head_dim) + Carver::bytes<float>(panel_rows, padded(shape.key_len)) +
           Carver::bytes<E>(panel_rows, shape.key_len);
  }

  void operator()(const ForwardPanel<T, E>& panel, int thread, Carver scratch) const {
    const auto& [place, row, head, q, k, v, result] = panel;
    const std::int64_t dim = result.cols;
    const Matrix<float> out = scratch.take<float>(place.rows, dim);
    const Matrix<float> scores = scratch.take<float>(place.rows, padded(place.keys)).cols_from(0, place.keys);
    const Matrix<E> room = scratch.take<E>(place.rows, place.keys);
    multiply_(Gemm<E, float>{.a = q, .b = k, .c = scores, .transpose_b = true}, thread);
    const auto scale = static_cast<float>(attention_.scale);
    std::array<float, panel_rows> inverse_sum;
    for (std::int64_t r = 0; r < place.rows; ++r) {
      float* score = scores.row(r);
      mask(place, r, scores);
      const float most = scale * largest(score, scores.stride);
      exponentials(score, scores.stride, scale, most);
      const float sum = sum_of(score, scores.stride);
      inverse_sum[static_cast<std::size_t>(r)] = 1.0f / sum;
      attention_.log_sum_exp.row(row + r)[head] = most + std::log(sum);
    }
    multiply_(Gemm<E, float>{.a = rounded(scores, room), .b = v, .c = out}, thread);
    for (std::int64_t r = 0; r < place.rows; ++r) {
      scaled(Matrix<const float>(out.row(r), 1, dim), inverse_sum[static_cast<std::size_t>(r)], result.rows_from(r, 1));
    }
  }

 private:
  const AttentionForward<T>& attention_;
  const TileGemm& multiply_;
};

/// dv += pᵀ·d_out, dp = d_out·vᵀ, ds = p ∘ (dp - Σ_d d_out·out), dq = scale · ds·k, dk += dsᵀ·q.
template <class T, class E>
class SoftmaxBackward {
 public:
  using Element = E;
  SoftmaxBackward(const AttentionBackward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return Carver::bytes<float>(panel_rows, shape.head_dim) +
           2 * Carver::bytes<float>(panel_rows, padded(shape.key_len)) + Carver::bytes<E>(panel_rows, shape.key_len);
  }

  void operator()(const BackwardPanel<T, E>& panel, int thread, Carver scratch) const {
    const auto& [place, row, head, q, k, v, d_out, dk, dv, dq] = panel;
    const std::int64_t dim = dq.cols, column = head * dim;
    const Matrix<float> dq_sum = scratch.take<float>(place.rows, dim);
    const Matrix<float> scores = scratch.take<float>(place.rows, padded(place.keys)).cols_from(0, place.keys);
    const Matrix<float> d_scores = scratch.take<float>(place.rows, padded(place.keys)).cols_from(0, place.keys);
    const Matrix<E> room = scratch.take<E>(place.rows, place.keys);
    multiply_(Gemm<E, float>{.a = q, .b = k, .c = scores, .transpose_b = true}, thread);
    multiply_(Gemm<E, float>{.a = d_out, .b = v, .c = d_scores, .transpose_b = true}, thread);
    const auto scale = static_cast<float>(attention_.scale);
    for (std::int64_t r = 0; r < place.rows; ++r) {
      mask(place, r, scores);
      exponentials(scores.row(r), scores.stride, scale, attention_.log_sum_exp.row(row + r)[head]);
      const float mean = dot(attention_.out.row(row + r) + column, attention_.d_out.row(row + r) + column, dim);
      softmax_gradient(scores.row(r), mean, d_scores.row(r), scores.stride);
    }
    multiply_(Gemm<E, float>{.a = rounded(scores, room), .b = d_out, .c = dv, .transpose_a = true, .accumulate = true},
              thread);
    const Matrix<const E> ds = rounded(d_scores, room);
    multiply_(Gemm<E, float>{.a = ds, .b = q, .c = dk, .transpose_a = true, .accumulate = true}, thread);
    multiply_(Gemm<E, float>{.a = ds, .b = k, .c = dq_sum}, thread);
    scaled(Matrix<const float>(dq_sum), scale, dq);
  }

 private:
  /// ds = p · (dp - mean), in place of dp.
  static void softmax_gradient(const float* p, float mean, float* dp, std::int64_t count) {
    count = count / lanes * lanes;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) dp[j] = p[j] * (dp[j] - mean);
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

template void run(const CpuStream&, const AttentionForward<float>&);
template void run(const CpuStream&, const AttentionForward<double>&);
template void run(const CpuStream&, const AttentionForward<bfloat16>&);
template void run(const CpuStream&, const AttentionBackward<float>&);
template void run(const CpuStream&, const AttentionBackward<double>&);
template void run(const CpuStream&, const AttentionBackward<bfloat16>&);

}  // namespace lyceum
