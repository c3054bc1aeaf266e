#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention.h"

namespace lyceum::reference {

// Attention as plain loops. It computes the instances for double and is the reference in tests of the fast versions.

/// The weights of the keys that one query sees: probability[i] = exp(scale · q·k_i - log_sum_exp).
template <class T>
struct AttentionRow {
  using Sum = Accumulator<T>;
  std::vector<Sum> probability;
  Sum log_sum_exp;

  /// Computes the softmax over the keys.
  AttentionRow(const T* query, const Matrix<const T>& keys, Sum scale) : probability(scores(query, keys, scale)) {
    Sum largest = -std::numeric_limits<Sum>::infinity();
    for (const Sum score : probability) {
      if (score > largest) largest = score;
    }
    Sum sum = 0;
    for (const Sum score : probability) sum += std::exp(score - largest);
    log_sum_exp = largest + std::log(sum);
    exponentiate();
  }
  /// Uses a given log_sum_exp, which may include more than the keys.
  AttentionRow(const T* query, const Matrix<const T>& keys, Sum scale, Sum log_sum_exp)
      : probability(scores(query, keys, scale)), log_sum_exp(log_sum_exp) {
    exponentiate();
  }

 private:
  static std::vector<Sum> scores(const T* query, const Matrix<const T>& keys, Sum scale) {
    std::vector<Sum> all;
    for (std::int64_t j = 0; j < keys.rows; ++j) {
      Sum score = 0;
      for (std::int64_t d = 0; d < keys.cols; ++d)
        score += static_cast<Sum>(query[d]) * static_cast<Sum>(keys.row(j)[d]);
      all.push_back(score * scale);
    }
    return all;
  }
  void exponentiate() {
    for (Sum& value : probability) value = std::exp(value - log_sum_exp);
  }
};

/// Calls visit(head, row of q, first row of k that the query sees, number of keys it sees, first column of the head in
/// q, first column of its key head in k) for every query of every head.
template <class Attention, class Visit>
void for_each_query(const Attention& attention, Visit&& visit) {
  const AttentionShape& shape = attention.shape;
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t i = 0; i < shape.query_len; ++i) {
        const std::int64_t row = s * shape.query_len + i;
        const std::int64_t end = shape.key_len - shape.query_len + i + 1;
        std::int64_t first = attention.first_keys.empty() ? 0 : attention.first_keys[static_cast<std::size_t>(row)];
        if (shape.window > 0 && end - first > shape.window) first = end - shape.window;
        visit(h, row, s * shape.key_len + first, end - first, h * shape.head_dim,
              h * shape.kv_heads / shape.heads * shape.head_dim);
      }
    }
  }
}

/// out = Σ_i weights[i] · values[i].
template <class T, class Sum = Accumulator<T>>
void weighted_sum(const std::vector<Sum>& weights, const Matrix<const T>& values, T* out) {
  for (std::int64_t d = 0; d < values.cols; ++d) {
    Sum sum = 0;
    for (std::int64_t j = 0; j < values.rows; ++j) {
      sum += weights[static_cast<std::size_t>(j)] * static_cast<Sum>(values.row(j)[d]);
    }
    out[d] = static_cast<T>(sum);
  }
}

/// Computes the gradients of q, k and v of an attention whose output is a sum of values, weighted by functions of the
/// scores. Call add() for every query, then write().
template <class T, class Backward>
class QueryGradients {
 public:
  using Sum = Accumulator<T>;
  explicit QueryGradients(const Backward& attention)
      : attention_(attention), dk_(static_cast<std::size_t>(attention.k.size())), dv_(dk_) {}

  /// Adds one query; the arguments are those of for_each_query(), and the weights of the keys. d_score(i, derivative of
  /// weight i) returns the derivative of q·k_i; it is called for the keys in ascending order. Writes dq.
  template <class DScore>
  void add(std::int64_t row, std::int64_t first, std::int64_t seen, std::int64_t q_col, std::int64_t k_col,
           const std::vector<Sum>& weights, DScore&& d_score) {
    const T *query = attention_.q.row(row) + q_col, *d_out = attention_.d_out.row(row) + q_col;
    const std::int64_t dim = attention_.shape.head_dim;
    std::vector<Sum> dq(static_cast<std::size_t>(dim));
    for (std::int64_t j = 0; j < seen; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const T *key = attention_.k.row(first + j) + k_col, *value = attention_.v.row(first + j) + k_col;
      Sum d_weight = 0;
      for (std::int64_t d = 0; d < dim; ++d) d_weight += static_cast<Sum>(d_out[d]) * static_cast<Sum>(value[d]);
      const Sum ds = d_score(at, d_weight);
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto cell = static_cast<std::size_t>((first + j) * attention_.k.cols + k_col + d);
        dq[static_cast<std::size_t>(d)] += ds * static_cast<Sum>(key[d]);
        dk_[cell] += ds * static_cast<Sum>(query[d]);
        dv_[cell] += weights[at] * static_cast<Sum>(d_out[d]);
      }
    }
    for (std::int64_t d = 0; d < dim; ++d)
      attention_.dq.row(row)[q_col + d] = static_cast<T>(dq[static_cast<std::size_t>(d)]);
  }

  /// Writes dk and dv, after all queries have been added.
  void write() const {
    for (std::int64_t r = 0; r < attention_.k.rows; ++r) {
      for (std::int64_t c = 0; c < attention_.k.cols; ++c) {
        const auto cell = static_cast<std::size_t>(r * attention_.k.cols + c);
        attention_.dk.row(r)[c] = static_cast<T>(dk_[cell]);
        attention_.dv.row(r)[c] = static_cast<T>(dv_[cell]);
      }
    }
  }

 private:
  const Backward& attention_;
  std::vector<Sum> dk_, dv_;
};

template <class T>
void run(const CpuStream&, const AttentionForward<T>& attention) {
  using Sum = Accumulator<T>;
  const std::int64_t dim = attention.shape.head_dim;
  for_each_query(attention, [&](auto head, auto row, auto first, auto seen, auto q_col, auto k_col) {
    const AttentionRow<T> softmax(attention.q.row(row) + q_col,
                                  attention.k.rows_from(first, seen).cols_from(k_col, dim),
                                  static_cast<Sum>(attention.scale));
    attention.log_sum_exp.row(row)[head] = softmax.log_sum_exp;
    weighted_sum(softmax.probability, attention.v.rows_from(first, seen).cols_from(k_col, dim),
                 attention.out.row(row) + q_col);
  });
}

/// Computes, with the probabilities p: dv = pᵀ·d_out, dp = d_out·vᵀ, ds = scale · p ∘ (dp - Σ_d d_out·out), dq = ds·k,
/// dk = dsᵀ·q.
template <class T>
void run(const CpuStream&, const AttentionBackward<T>& attention) {
  using Sum = Accumulator<T>;
  const std::int64_t dim = attention.shape.head_dim;
  const auto scale = static_cast<Sum>(attention.scale);
  QueryGradients<T, AttentionBackward<T>> gradients(attention);
  for_each_query(attention, [&](auto head, auto row, auto first, auto seen, auto q_col, auto k_col) {
    const AttentionRow<T> softmax(attention.q.row(row) + q_col,
                                  attention.k.rows_from(first, seen).cols_from(k_col, dim), scale,
                                  attention.log_sum_exp.row(row)[head]);
    Sum mean = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      mean +=
          static_cast<Sum>(attention.d_out.row(row)[q_col + d]) * static_cast<Sum>(attention.out.row(row)[q_col + d]);
    }
    gradients.add(row, first, seen, q_col, k_col, softmax.probability, [&](std::size_t i, Sum d_probability) {
      return scale * softmax.probability[i] * (d_probability - mean);
    });
  });
  gradients.write();
}

}  // namespace lyceum::reference
