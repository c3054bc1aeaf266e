#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/attention_check.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/reference_attention.h"
#include "kernels/cpu/tile_gemm.h"
#include "kernels/cpu/vector_math.h"

namespace lyceum {

namespace {

/// Queries whose scores exist at a time: enough rows to keep a GEMM busy, few enough that little of the work lies
/// above the diagonal.
constexpr std::int64_t panel_rows = 64;

/// Hands out the matrices that a thread's scratch is divided into.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  template <class E>
  Matrix<E> take(std::int64_t rows, std::int64_t cols) {
    Matrix<E> matrix(reinterpret_cast<E*>(memory_), rows, cols);
    memory_ += bytes<E>(rows, cols);
    return matrix;
  }
  template <class E>
  static std::int64_t bytes(std::int64_t rows, std::int64_t cols) {
    return (rows * cols * static_cast<std::int64_t>(sizeof(E)) + 63) / 64 * 64;
  }

 private:
  std::byte* memory_;
};

/// The queries of one head that are worked on together: rows [first, first + rows) of a sequence, and the keys that
/// the last of them sees; row r sees `seen(r)`.
struct Panel {
  std::int64_t first, rows, before, keys;
  Panel(const AttentionShape& shape, std::int64_t index)
      : first(index * panel_rows),
        rows(std::min(panel_rows, shape.query_len - first)),
        before(shape.key_len - shape.query_len + first),
        keys(before + rows) {}
  std::int64_t seen(std::int64_t row) const { return before + row + 1; }
};

/// Rows of scores are followed by room up to the next multiple of this, so that their loops have no scalar rest.
constexpr std::int64_t lanes = 16;
constexpr std::int64_t padded(std::int64_t keys) { return (keys + lanes - 1) / lanes * lanes; }

/// Minus infinity for the keys that a query does not see, whose probability so comes out as zero.
void mask(float* scores, std::int64_t seen, std::int64_t count) {
  std::fill(scores + seen, scores + count, -std::numeric_limits<float>::infinity());
}

/// `count` is a multiple of `lanes`. A NaN is passed over here and comes out of the exponentials.
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

/// `matrix` as elements of E: itself, or rounded into `room`.
template <class E>
Matrix<const E> rounded(const Matrix<float>& matrix, const Matrix<E>& room) {
  if constexpr (std::is_same_v<E, float>) {
    return matrix;
  } else {
    const Matrix<E> fitted(room.data, matrix.rows, matrix.cols);
    convert(Matrix<const float>(matrix), fitted);
    return fitted;
  }
}

/// to = factor · from, in another type.
template <class From, class To>
void scaled(const Matrix<const From>& from, float factor, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    for (std::int64_t c = 0; c < from.cols; ++c) {
      to.row(r)[c] = static_cast<To>(static_cast<float>(from.row(r)[c]) * factor);
    }
  }
}

/// Forward of some panels of all query heads that share a key head. E is what the GEMMs read: float, or bfloat16
/// where the CPU multiplies that itself.
template <class T, class E>
class ForwardTask {
 public:
  ForwardTask(const AttentionForward<T>& attention, const TileGemm& multiply)
      : attention_(attention), shape_(attention.shape), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    const std::int64_t dim = shape.head_dim;
    return 2 * Carver::bytes<E>(shape.key_len, dim) + Carver::bytes<E>(panel_rows, dim) +
           Carver::bytes<float>(panel_rows, dim) + Carver::bytes<float>(panel_rows, padded(shape.key_len)) +
           Carver::bytes<E>(panel_rows, shape.key_len);
  }

  void operator()(std::int64_t sequence, std::int64_t kv_head, std::int64_t first_panel, std::int64_t last_panel,
                  int thread, std::byte* scratch) const {
    const std::int64_t dim = shape_.head_dim, group = shape_.heads / shape_.kv_heads;
    const std::int64_t keys = Panel(shape_, last_panel - 1).keys;
    Carver carver(scratch);
    const Matrix<E> k = carver.take<E>(keys, dim), v = carver.take<E>(keys, dim);
    const std::int64_t first_key = sequence * shape_.key_len;
    convert(attention_.k.rows_from(first_key, keys).cols_from(kv_head * dim, dim), k);
    convert(attention_.v.rows_from(first_key, keys).cols_from(kv_head * dim, dim), v);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t index = first_panel; index < last_panel; ++index) {
        panel(sequence, head, Panel(shape_, index), k, v, thread, carver);
      }
    }
  }

 private:
  void panel(std::int64_t sequence, std::int64_t head, const Panel& panel, const Matrix<E>& k, const Matrix<E>& v,
             int thread, Carver carver) const {
    const std::int64_t dim = shape_.head_dim, row = sequence * shape_.query_len + panel.first;
    const Matrix<E> q = carver.take<E>(panel.rows, dim);
    const Matrix<float> out = carver.take<float>(panel.rows, dim);
    const Matrix<float> scores = carver.take<float>(panel.rows, padded(panel.keys)).cols_from(0, panel.keys);
    const Matrix<E> room = carver.take<E>(panel.rows, panel.keys);
    convert(attention_.q.rows_from(row, panel.rows).cols_from(head * dim, dim), q);
    multiply_(Gemm<E, float>{.a = q, .b = k.rows_from(0, panel.keys), .c = scores, .transpose_b = true}, thread);
    const auto scale = static_cast<float>(attention_.scale);
    std::array<float, panel_rows> inverse_sum;
    for (std::int64_t r = 0; r < panel.rows; ++r) {
      float* score = scores.row(r);
      mask(score, panel.seen(r), scores.stride);
      const float most = scale * largest(score, scores.stride);
      exponentials(score, scores.stride, scale, most);
      const float sum = sum_of(score, scores.stride);
      inverse_sum[static_cast<std::size_t>(r)] = 1.0f / sum;
      attention_.log_sum_exp.row(row + r)[head] = most + std::log(sum);
    }
    multiply_(Gemm<E, float>{.a = rounded(scores, room), .b = v.rows_from(0, panel.keys), .c = out}, thread);
    for (std::int64_t r = 0; r < panel.rows; ++r) {
      scaled(Matrix<const float>(out.row(r), 1, dim), inverse_sum[static_cast<std::size_t>(r)],
             Matrix<T>(attention_.out.row(row + r) + head * dim, 1, dim));
    }
  }

  const AttentionForward<T>& attention_;
  const AttentionShape& shape_;
  const TileGemm& multiply_;
};

/// Backward of all query heads that share a key head, panel by panel in a fixed order:
/// dv += pᵀ·d_out, dp = d_out·vᵀ, ds = p ∘ (dp - Σ_d d_out·out), dq = scale · ds·k, dk += scale · dsᵀ·q.
template <class T, class E>
class BackwardTask {
 public:
  BackwardTask(const AttentionBackward<T>& attention, const TileGemm& multiply)
      : attention_(attention), shape_(attention.shape), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    const std::int64_t dim = shape.head_dim;
    return 2 * Carver::bytes<E>(shape.key_len, dim) + 2 * Carver::bytes<float>(shape.key_len, dim) +
           2 * Carver::bytes<E>(panel_rows, dim) + Carver::bytes<float>(panel_rows, dim) +
           2 * Carver::bytes<float>(panel_rows, padded(shape.key_len)) + Carver::bytes<E>(panel_rows, shape.key_len);
  }

  void operator()(std::int64_t sequence, std::int64_t kv_head, int thread, std::byte* scratch) const {
    const std::int64_t dim = shape_.head_dim, keys = shape_.key_len, group = shape_.heads / shape_.kv_heads;
    const std::int64_t first_key = sequence * keys, column = kv_head * dim;
    Carver carver(scratch);
    const Matrix<E> k = carver.take<E>(keys, dim), v = carver.take<E>(keys, dim);
    const Matrix<float> dk = carver.take<float>(keys, dim), dv = carver.take<float>(keys, dim);
    convert(attention_.k.rows_from(first_key, keys).cols_from(column, dim), k);
    convert(attention_.v.rows_from(first_key, keys).cols_from(column, dim), v);
    std::fill_n(dk.data, dk.size(), 0.0f);
    std::fill_n(dv.data, dv.size(), 0.0f);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t index = 0; index * panel_rows < shape_.query_len; ++index) {
        panel(sequence, head, Panel(shape_, index), {k, v, dk, dv}, thread, carver);
      }
    }
    scaled(Matrix<const float>(dk), static_cast<float>(attention_.scale),
           attention_.dk.rows_from(first_key, keys).cols_from(column, dim));
    convert(Matrix<const float>(dv), attention_.dv.rows_from(first_key, keys).cols_from(column, dim));
  }

 private:
  struct Keys {
    Matrix<E> k, v;
    Matrix<float> dk, dv;
  };

  void panel(std::int64_t sequence, std::int64_t head, const Panel& panel, const Keys& all, int thread,
             Carver carver) const {
    const std::int64_t dim = shape_.head_dim, row = sequence * shape_.query_len + panel.first, column = head * dim;
    const Matrix<E> q = carver.take<E>(panel.rows, dim), d_out = carver.take<E>(panel.rows, dim);
    const Matrix<float> dq = carver.take<float>(panel.rows, dim);
    const Matrix<float> scores = carver.take<float>(panel.rows, padded(panel.keys)).cols_from(0, panel.keys);
    const Matrix<float> d_scores = carver.take<float>(panel.rows, padded(panel.keys)).cols_from(0, panel.keys);
    const Matrix<E> room = carver.take<E>(panel.rows, panel.keys);
    const Matrix<E> k = all.k.rows_from(0, panel.keys), v = all.v.rows_from(0, panel.keys);
    convert(attention_.q.rows_from(row, panel.rows).cols_from(column, dim), q);
    convert(attention_.d_out.rows_from(row, panel.rows).cols_from(column, dim), d_out);
    multiply_(Gemm<E, float>{.a = q, .b = k, .c = scores, .transpose_b = true}, thread);
    multiply_(Gemm<E, float>{.a = d_out, .b = v, .c = d_scores, .transpose_b = true}, thread);
    const auto scale = static_cast<float>(attention_.scale);
    for (std::int64_t r = 0; r < panel.rows; ++r) {
      mask(scores.row(r), panel.seen(r), scores.stride);
      exponentials(scores.row(r), scores.stride, scale, attention_.log_sum_exp.row(row + r)[head]);
      const float mean = dot(attention_.out.row(row + r) + column, attention_.d_out.row(row + r) + column, dim);
      softmax_gradient(scores.row(r), mean, d_scores.row(r), scores.stride);
    }
    multiply_(Gemm<E, float>{.a = rounded(scores, room),
                             .b = d_out,
                             .c = all.dv.rows_from(0, panel.keys),
                             .transpose_a = true,
                             .accumulate = true},
              thread);
    const Matrix<const E> ds = rounded(d_scores, room);
    multiply_(
        Gemm<E, float>{.a = ds, .b = q, .c = all.dk.rows_from(0, panel.keys), .transpose_a = true, .accumulate = true},
        thread);
    multiply_(Gemm<E, float>{.a = ds, .b = k, .c = dq}, thread);
    scaled(Matrix<const float>(dq), scale, attention_.dq.rows_from(row, panel.rows).cols_from(column, dim));
  }

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
  const AttentionShape& shape_;
  const TileGemm& multiply_;
};

template <class E, class T>
void forward(const CpuStream& stream, const AttentionForward<T>& attention) {
  const AttentionShape& shape = attention.shape;
  const TileGemm multiply = TileGemm::make<E>(stream, 0, 0);
  const ThreadScratch scratch(stream, ForwardTask<T, E>::scratch_bytes(shape));
  const ForwardTask<T, E> task(attention, multiply);
  const std::int64_t panels = (shape.query_len + panel_rows - 1) / panel_rows, heads = shape.sequences * shape.kv_heads;
  if (heads == 0 || panels == 0) return;
  // Too few heads for the threads: divide their queries. The last panels see the most keys, so they go first.
  const std::int64_t parts = std::min(panels, (4 * stream.threads() + heads - 1) / heads);
  parallel_tasks(stream.threads(), parts * heads, [&](std::int64_t i, int thread) {
    const std::int64_t part = parts - 1 - i / heads, head = i % heads;
    task(head / shape.kv_heads, head % shape.kv_heads, part * panels / parts, (part + 1) * panels / parts, thread,
         scratch.of(thread));
  });
}

template <class E, class T>
void backward(const CpuStream& stream, const AttentionBackward<T>& attention) {
  const AttentionShape& shape = attention.shape;
  const TileGemm multiply = TileGemm::make<E>(stream, 0, 0);
  const ThreadScratch scratch(stream, BackwardTask<T, E>::scratch_bytes(shape));
  const BackwardTask<T, E> task(attention, multiply);
  parallel_tasks(stream.threads(), shape.sequences * shape.kv_heads, [&](std::int64_t i, int thread) {
    task(i / shape.kv_heads, i % shape.kv_heads, thread, scratch.of(thread));
  });
}

/// oneDNN would compile a bf16 product for every key length while text is generated token by token.
template <class T>
bool in_bf16(const CpuStream& stream, const AttentionShape& shape) {
  return std::is_same_v<T, bfloat16> && uses_native_bf16(stream) && shape.query_len >= panel_rows;
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const AttentionForward<T>& attention) {
  require_fitting(attention);
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, attention);
  } else {
    in_bf16<T>(stream, attention.shape) ? forward<T>(stream, attention) : forward<float>(stream, attention);
  }
}

template <class T>
void run(const CpuStream& stream, const AttentionBackward<T>& attention) {
  require_fitting(attention);
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, attention);
  } else {
    in_bf16<T>(stream, attention.shape) ? backward<T>(stream, attention) : backward<float>(stream, attention);
  }
}

template void run(const CpuStream&, const AttentionForward<float>&);
template void run(const CpuStream&, const AttentionForward<double>&);
template void run(const CpuStream&, const AttentionForward<bfloat16>&);
template void run(const CpuStream&, const AttentionBackward<float>&);
template void run(const CpuStream&, const AttentionBackward<double>&);
template void run(const CpuStream&, const AttentionBackward<bfloat16>&);

}  // namespace lyceum
