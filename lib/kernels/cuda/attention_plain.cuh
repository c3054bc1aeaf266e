#pragma once

#include <cstdint>

#include "kernels/cuda/attention_task.cuh"

namespace lyceum::cuda {

// Attention of any element type and any head dimension, a block for each row of the result: for double, which gradient
// checks use, for float, and for heads longer than the tensor cores' tiles. Rows of scores exist `plain_tile` at a
// time.

/// Threads of a block, and keys or queries that it looks at together.
inline constexpr int plain_tile = 128;

/// Shared memory: two numbers a key or query of the tile, two a column of the head.
template <class T>
std::int64_t plain_shared_bytes(const AttentionShape& shape) {
  return (2 * plain_tile + 2 * shape.head_dim) * static_cast<std::int64_t>(sizeof(Accumulator<T>));
}

template <class T, class Machine>
LYCEUM_DEVICE Accumulator<T> dot(const Machine& m, const T* a, const T* b, std::int64_t count) {
  Accumulator<T> sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += m.widen(a[d]) * m.widen(b[d]);
  return sum;
}

/// One query's row of AttentionForward; `index` counts rows and heads.
template <class T, class Machine>
LYCEUM_DEVICE void plain_forward(const Machine& m, const ForwardTask<T>& task, std::int64_t index) {
  using Sum = Accumulator<T>;
  const AttentionShape& shape = task.shape;
  const std::int64_t row = index / shape.heads, head = index % shape.heads, dim = shape.head_dim;
  const std::int64_t first = row / shape.query_len * shape.key_len, col = head / (shape.heads / shape.kv_heads) * dim;
  const std::int64_t seen = causal_order(shape).seen(static_cast<int>(row % shape.query_len));
  Sum *p = m.template shared<Sum>(0), *out = p + 2 * plain_tile;
  for (std::int64_t d = m.thread(); d < dim; d += plain_tile) out[d] = 0;
  Sum largest = -__builtin_huge_val(), sum = 0;
  for (std::int64_t key = 0; key < seen; key += plain_tile) {
    const auto count = static_cast<int>(seen - key < plain_tile ? seen - key : plain_tile);
    if (m.thread() < count) {
      p[m.thread()] = dot(m, task.q.at(row, head * dim), task.k.at(first + key + m.thread(), col), dim) * task.scale;
    }
    m.sync();
    Sum most = largest;
    for (int j = 0; j < count; ++j) most = m.larger(most, p[j]);
    const Sum shrink = m.exp(largest - most);
    largest = most;
    sum *= shrink;
    for (int j = 0; j < count; ++j) sum += m.exp(p[j] - most);
    for (std::int64_t d = m.thread(); d < dim; d += plain_tile) {
      Sum total = out[d] * shrink;
      for (int j = 0; j < count; ++j) total += m.exp(p[j] - most) * m.widen(*task.v.at(first + key + j, col + d));
      out[d] = total;
    }
    m.sync();
  }
  for (std::int64_t d = m.thread(); d < dim; d += plain_tile) m.narrow(out[d] / sum, *task.out.at(row, head * dim + d));
  if (m.thread() == 0) *task.log_sum_exp.at(row, head) = largest + m.log(sum);
}

/// p and ds of one query and one key.
template <class T>
struct PlainGradient {
  Accumulator<T> p, ds;
  template <class Machine>
  LYCEUM_DEVICE PlainGradient(const Machine& m, const BackwardTask<T>& task, std::int64_t row, std::int64_t head,
                              std::int64_t key_row, std::int64_t col) {
    const std::int64_t dim = task.shape.head_dim;
    const Accumulator<T> score = dot(m, task.q.at(row, head * dim), task.k.at(key_row, col), dim) * task.scale;
    const Accumulator<T> dp = dot(m, task.d_out.at(row, head * dim), task.v.at(key_row, col), dim);
    p = m.exp(score - *task.log_sum_exp.at(row, head));
    ds = p * (dp - *task.delta.at(row, head)) * task.scale;
  }
};

/// One query's row of dq; `index` counts rows and heads.
template <class T, class Machine>
LYCEUM_DEVICE void plain_dq(const Machine& m, const BackwardTask<T>& task, std::int64_t index) {
  using Sum = Accumulator<T>;
  const AttentionShape& shape = task.shape;
  const std::int64_t row = index / shape.heads, head = index % shape.heads, dim = shape.head_dim;
  const std::int64_t first = row / shape.query_len * shape.key_len, col = head / (shape.heads / shape.kv_heads) * dim;
  const std::int64_t seen = causal_order(shape).seen(static_cast<int>(row % shape.query_len));
  Sum *ds = m.template shared<Sum>(0), *dq = ds + 2 * plain_tile;
  for (std::int64_t d = m.thread(); d < dim; d += plain_tile) dq[d] = 0;
  for (std::int64_t key = 0; key < seen; key += plain_tile) {
    const auto count = static_cast<int>(seen - key < plain_tile ? seen - key : plain_tile);
    if (m.thread() < count) {
      ds[m.thread()] = PlainGradient<T>(m, task, row, head, first + key + m.thread(), col).ds;
    }
    m.sync();
    for (std::int64_t d = m.thread(); d < dim; d += plain_tile) {
      Sum total = dq[d];
      for (int j = 0; j < count; ++j) total += ds[j] * m.widen(*task.k.at(first + key + j, col + d));
      dq[d] = total;
    }
    m.sync();
  }
  for (std::int64_t d = m.thread(); d < dim; d += plain_tile) m.narrow(dq[d], *task.dq.at(row, head * dim + d));
}

/// One key's rows of dk and dv; `index` counts rows and key heads.
template <class T, class Machine>
LYCEUM_DEVICE void plain_dkv(const Machine& m, const BackwardTask<T>& task, std::int64_t index) {
  using Sum = Accumulator<T>;
  const AttentionShape& shape = task.shape;
  const std::int64_t key_row = index / shape.kv_heads, kv_head = index % shape.kv_heads, dim = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads, first = key_row / shape.key_len * shape.query_len;
  Sum *p = m.template shared<Sum>(0), *ds = p + plain_tile, *dk = ds + plain_tile, *dv = dk + dim;
  for (std::int64_t d = m.thread(); d < dim; d += plain_tile) dk[d] = dv[d] = 0;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t query = causal_order(shape).first_query(static_cast<int>(key_row % shape.key_len));
         query < shape.query_len; query += plain_tile) {
      const std::int64_t rest = shape.query_len - query;
      const auto count = static_cast<int>(rest < plain_tile ? rest : plain_tile);
      if (m.thread() < count) {
        const PlainGradient<T> gradient(m, task, first + query + m.thread(), head, key_row, kv_head * dim);
        p[m.thread()] = gradient.p;
        ds[m.thread()] = gradient.ds;
      }
      m.sync();
      for (std::int64_t d = m.thread(); d < dim; d += plain_tile) {
        Sum k_total = dk[d], v_total = dv[d];
        for (int j = 0; j < count; ++j) {
          k_total += ds[j] * m.widen(*task.q.at(first + query + j, head * dim + d));
          v_total += p[j] * m.widen(*task.d_out.at(first + query + j, head * dim + d));
        }
        dk[d] = k_total;
        dv[d] = v_total;
      }
      m.sync();
    }
  }
  for (std::int64_t d = m.thread(); d < dim; d += plain_tile) {
    m.narrow(dk[d], *task.dk.at(key_row, kv_head * dim + d));
    m.narrow(dv[d], *task.dv.at(key_row, kv_head * dim + d));
  }
}

}  // namespace lyceum::cuda
