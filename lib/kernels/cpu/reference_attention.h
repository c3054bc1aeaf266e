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
  Sum largest = -std::numeric_limits<Sum>::infinity();  // scaled score, without NaNs; set by the first constructor

  /// Computes the softmax over the keys.
  AttentionRow(const T* query, const Matrix<const T>& keys, Sum scale) : probability(scores(query, keys, scale)) {
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

/// One query of one head, and the rows and columns that it uses.
struct QueryAt {
  std::int64_t head, row;       // head, and row of q
  std::int64_t first, seen;     // first row of k that the query sees, and number of keys that it sees
  std::int64_t q_col, k_col;    // first column of the head in q, and of its key head in k
  std::int64_t out_col, v_col;  // first column of the head in out, and of its key head in v
};

/// Calls visit(QueryAt) for every query of every head.
template <class Attention, class Visit>
void for_each_query(const Attention& attention, Visit&& visit) {
  const AttentionShape& shape = attention.shape;
  const std::int64_t dim = shape.head_dim, value_dim = shape.value_cols();
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t i = 0; i < shape.query_len; ++i) {
        const std::int64_t row = s * shape.query_len + i;
        const std::int64_t end = shape.key_len - shape.query_len + i + 1;
        std::int64_t first = attention.first_keys.empty() ? 0 : attention.first_keys[static_cast<std::size_t>(row)];
        if (shape.window > 0 && end - first > shape.window) first = end - shape.window;
        const std::int64_t kv_head = h * shape.kv_heads / shape.heads;
        visit(QueryAt{.head = h,
                      .row = row,
                      .first = s * shape.key_len + first,
                      .seen = end - first,
                      .q_col = h * dim,
                      .k_col = kv_head * dim,
                      .out_col = h * value_dim,
                      .v_col = kv_head * value_dim});
      }
    }
  }
}

/// Return the keys and the values that a query sees, restricted to the columns of its key head.
template <class Attention>
auto keys_of(const Attention& attention, const QueryAt& at) {
  return attention.k.rows_from(at.first, at.seen).cols_from(at.k_col, attention.shape.head_dim);
}
template <class Attention>
auto values_of(const Attention& attention, const QueryAt& at) {
  return attention.v.rows_from(at.first, at.seen).cols_from(at.v_col, attention.shape.value_cols());
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
      : attention_(attention),
        dk_(static_cast<std::size_t>(attention.k.size())),
        dv_(static_cast<std::size_t>(attention.v.size())) {}

  /// Adds one query with the weights of its keys. d_score(i, derivative of weight i) returns the derivative of q·k_i;
  /// it is called for the keys in ascending order. Writes dq.
  template <class DScore>
  void add(const QueryAt& at, const std::vector<Sum>& weights, DScore&& d_score) {
    const T *query = attention_.q.row(at.row) + at.q_col, *d_out = attention_.d_out.row(at.row) + at.out_col;
    const std::int64_t dim = attention_.shape.head_dim, value_dim = attention_.shape.value_cols();
    std::vector<Sum> dq(static_cast<std::size_t>(dim));
    for (std::int64_t j = 0; j < at.seen; ++j) {
      const auto index = static_cast<std::size_t>(j);
      const std::int64_t row = at.first + j;
      const T *key = attention_.k.row(row) + at.k_col, *value = attention_.v.row(row) + at.v_col;
      Sum d_weight = 0;
      for (std::int64_t d = 0; d < value_dim; ++d) {
        d_weight += static_cast<Sum>(d_out[d]) * static_cast<Sum>(value[d]);
        dv_[static_cast<std::size_t>(row * attention_.v.cols + at.v_col + d)] +=
            weights[index] * static_cast<Sum>(d_out[d]);
      }
      const Sum ds = d_score(index, d_weight);
      for (std::int64_t d = 0; d < dim; ++d) {
        dq[static_cast<std::size_t>(d)] += ds * static_cast<Sum>(key[d]);
        dk_[static_cast<std::size_t>(row * attention_.k.cols + at.k_col + d)] += ds * static_cast<Sum>(query[d]);
      }
    }
    for (std::int64_t d = 0; d < dim; ++d)
      attention_.dq.row(at.row)[at.q_col + d] = static_cast<T>(dq[static_cast<std::size_t>(d)]);
  }

  /// Writes dk and dv, after all queries have been added.
  void write() const {
    write(dk_, attention_.dk);
    write(dv_, attention_.dv);
  }

 private:
  static void write(const std::vector<Sum>& sums, const Matrix<T>& to) {
    for (std::int64_t r = 0; r < to.rows; ++r) {
      for (std::int64_t c = 0; c < to.cols; ++c) {
        to.row(r)[c] = static_cast<T>(sums[static_cast<std::size_t>(r * to.cols + c)]);
      }
    }
  }

  const Backward& attention_;
  std::vector<Sum> dk_, dv_;
};

template <class T>
void run(const CpuStream&, const AttentionForward<T>& attention) {
  using Sum = Accumulator<T>;
  for_each_query(attention, [&](const QueryAt& at) {
    const AttentionRow<T> softmax(attention.q.row(at.row) + at.q_col, keys_of(attention, at),
                                  static_cast<Sum>(attention.scale));
    attention.log_sum_exp.row(at.row)[at.head] = softmax.log_sum_exp;
    if (attention.largest.data) attention.largest.row(at.row)[at.head] = softmax.largest;
    weighted_sum(softmax.probability, values_of(attention, at), attention.out.row(at.row) + at.out_col);
  });
}

/// Computes, with the probabilities p: dv = pᵀ·d_out, dp = d_out·vᵀ, ds = scale · p ∘ (dp - Σ_d d_out·out), dq = ds·k,
/// dk = dsᵀ·q.
template <class T>
void run(const CpuStream&, const AttentionBackward<T>& attention) {
  using Sum = Accumulator<T>;
  const auto scale = static_cast<Sum>(attention.scale);
  QueryGradients<T, AttentionBackward<T>> gradients(attention);
  for_each_query(attention, [&](const QueryAt& at) {
    const AttentionRow<T> softmax(attention.q.row(at.row) + at.q_col, keys_of(attention, at), scale,
                                  attention.log_sum_exp.row(at.row)[at.head]);
    const T *d_out = attention.d_out.row(at.row) + at.out_col, *out = attention.out.row(at.row) + at.out_col;
    Sum mean = 0;
    for (std::int64_t d = 0; d < attention.shape.value_cols(); ++d) {
      mean += static_cast<Sum>(d_out[d]) * static_cast<Sum>(out[d]);
    }
    gradients.add(at, softmax.probability, [&](std::size_t i, Sum d_probability) {
      return scale * softmax.probability[i] * (d_probability - mean);
    });
  });
  gradients.write();
}

}  // namespace lyceum::reference
