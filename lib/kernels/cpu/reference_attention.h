#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention.h"

namespace lyceum::reference {

/// One query's softmax over the keys that it may see: exp(scale · q·k - log_sum_exp), and log_sum_exp.
template <class T>
struct AttentionRow {
  using Sum = Accumulator<T>;
  std::vector<Sum> probability;
  Sum log_sum_exp;

  AttentionRow(const T* query, const Matrix<const T>& keys, Sum scale) {
    Sum largest = -std::numeric_limits<Sum>::infinity();
    for (std::int64_t j = 0; j < keys.rows; ++j) {
      Sum score = 0;
      for (std::int64_t d = 0; d < keys.cols; ++d)
        score += static_cast<Sum>(query[d]) * static_cast<Sum>(keys.row(j)[d]);
      probability.push_back(score * scale);
      if (probability.back() > largest) largest = probability.back();
    }
    Sum sum = 0;
    for (const Sum score : probability) sum += std::exp(score - largest);
    log_sum_exp = largest + std::log(sum);
    for (Sum& value : probability) value = std::exp(value - log_sum_exp);
  }
};

/// Calls visit(head, row of q, first row of k, keys seen, column of q, column of k) for every query of every head.
template <class Visit>
void for_each_query(const AttentionShape& shape, Visit&& visit) {
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t i = 0; i < shape.query_len; ++i) {
        visit(h, s * shape.query_len + i, s * shape.key_len, shape.key_len - shape.query_len + i + 1,
              h * shape.head_dim, h * shape.kv_heads / shape.heads * shape.head_dim);
      }
    }
  }
}

template <class T>
void run(const CpuStream&, const AttentionForward<T>& attention) {
  using Sum = Accumulator<T>;
  const std::int64_t dim = attention.shape.head_dim;
  for_each_query(attention.shape, [&](auto head, auto row, auto first, auto seen, auto q_col, auto k_col) {
    const auto values = attention.v.rows_from(first, seen).cols_from(k_col, dim);
    const AttentionRow<T> softmax(attention.q.row(row) + q_col,
                                  attention.k.rows_from(first, seen).cols_from(k_col, dim),
                                  static_cast<Sum>(attention.scale));
    attention.log_sum_exp.row(row)[head] = softmax.log_sum_exp;
    for (std::int64_t d = 0; d < dim; ++d) {
      Sum sum = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        sum += softmax.probability[static_cast<std::size_t>(j)] * static_cast<Sum>(values.row(j)[d]);
      }
      attention.out.row(row)[q_col + d] = static_cast<T>(sum);
    }
  });
}

/// With p the probabilities: dv = pᵀ·d_out, dp = d_out·vᵀ, ds = scale · p ∘ (dp - Σ_j p dp), dq = ds·k, dk = dsᵀ·q.
template <class T>
void run(const CpuStream&, const AttentionBackward<T>& attention) {
  using Sum = Accumulator<T>;
  const std::int64_t dim = attention.shape.head_dim;
  const auto scale = static_cast<Sum>(attention.scale);
  const auto cells = static_cast<std::size_t>(attention.k.size());
  std::vector<Sum> dk(cells), dv(cells);
  for_each_query(attention.shape, [&](auto, auto row, auto first, auto seen, auto q_col, auto k_col) {
    const T* query = attention.q.row(row) + q_col;
    const T* d_out = attention.d_out.row(row) + q_col;
    const AttentionRow<T> softmax(query, attention.k.rows_from(first, seen).cols_from(k_col, dim), scale);
    std::vector<Sum> d_probability(static_cast<std::size_t>(seen)), dq(static_cast<std::size_t>(dim));
    Sum mean = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const T* value = attention.v.row(first + j) + k_col;
      for (std::int64_t d = 0; d < dim; ++d)
        d_probability[at] += static_cast<Sum>(d_out[d]) * static_cast<Sum>(value[d]);
      mean += softmax.probability[at] * d_probability[at];
    }
    for (std::int64_t j = 0; j < seen; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const Sum d_score = scale * softmax.probability[at] * (d_probability[at] - mean);
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto cell = static_cast<std::size_t>((first + j) * attention.k.cols + k_col + d);
        dq[static_cast<std::size_t>(d)] += d_score * static_cast<Sum>(attention.k.row(first + j)[k_col + d]);
        dk[cell] += d_score * static_cast<Sum>(query[d]);
        dv[cell] += softmax.probability[at] * static_cast<Sum>(d_out[d]);
      }
    }
    for (std::int64_t d = 0; d < dim; ++d)
      attention.dq.row(row)[q_col + d] = static_cast<T>(dq[static_cast<std::size_t>(d)]);
  });
  for (std::int64_t r = 0; r < attention.k.rows; ++r) {
    for (std::int64_t c = 0; c < attention.k.cols; ++c) {
      const auto cell = static_cast<std::size_t>(r * attention.k.cols + c);
      attention.dk.row(r)[c] = static_cast<T>(dk[cell]);
      attention.dv.row(r)[c] = static_cast<T>(dv[cell]);
    }
  }
}

}  // namespace lyceum::reference
