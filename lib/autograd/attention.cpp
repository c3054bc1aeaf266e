#include "autograd/attention.h"

#include <cmath>
#include <vector>

#include "core/copy.h"
#include "kernels/rope.h"

namespace lyceum {

namespace {

/// Where queries, keys and values stand, and what of them is rotated.
template <class T>
struct Columns {
  Matrix<T> q, k, v;
  std::vector<Matrix<T>> rotated;
};

void require_width(const RotaryAttention& op, const Tensor& projections, std::int64_t heads) {
  require(projections.shape()[1] == heads * op.head_dim, "projections {} for {} + 2 · {} heads of {}",
          projections.shape(), op.heads, op.kv_heads, op.head_dim);
}

template <class T>
Columns<T> columns_of(const RotaryAttention& op, const Tensor& qkv) {
  const Matrix<T> all = qkv.matrix<T>();
  const std::int64_t q = op.heads * op.head_dim, kv = op.kv_heads * op.head_dim;
  require_width(op, qkv, op.heads + 2 * op.kv_heads);
  return {all.cols_from(0, q), all.cols_from(q, kv), all.cols_from(q + kv, kv), {all.cols_from(0, q + kv)}};
}

template <class T>
Columns<T> columns_of(const RotaryAttention& op, const Tensor& q, const Tensor& kv) {
  const Matrix<T> queries = q.matrix<T>(), all = kv.matrix<T>();
  const std::int64_t width = op.kv_heads * op.head_dim;
  require_width(op, q, op.heads);
  require_width(op, kv, 2 * op.kv_heads);
  const Matrix<T> keys = all.cols_from(0, width);
  return {queries, keys, all.cols_from(width, width), {queries, keys}};
}

/// Of so many `tokens`; `past`: positions before them.
AttentionShape shape_of(const RotaryAttention& op, std::int64_t tokens, std::int64_t past = 0) {
  return {tokens / op.seq_len, op.seq_len, past + op.seq_len, op.heads, op.kv_heads, op.head_dim};
}

double scale_of(const RotaryAttention& op) { return 1 / std::sqrt(static_cast<double>(op.head_dim)); }

template <class T>
void rotate(const Stream& stream, const RotaryAttention& op, const Columns<T>& columns, std::int64_t past,
            bool inverse) {
  for (const Matrix<T>& x : columns.rotated) {
    launch(stream, Rope<T>{.x = x,
                           .table = op.rope_table.matrix<Accumulator<T>>(),
                           .seq_len = op.seq_len,
                           .first_position = past,
                           .inverse = inverse});
  }
}

/// Adds new keys and values; then all that are there take their place.
template <class T>
void continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k, Matrix<T>& v) {
  require(cache.length + k.rows <= cache.capacity, "{} + {} positions in a cache for {}", cache.length, k.rows,
          cache.capacity);
  const auto append = [&](Tensor& cached, Matrix<T>& added) {
    if (!cached.defined()) {
      cached = Tensor::empty(stream, dtype_of<T>, {cache.capacity, added.cols}, MemoryKind::buffers);
    }
    const Matrix<T> all = cached.matrix<T>().rows_from(0, cache.length + added.rows);
    for (std::int64_t r = 0; r < added.rows; ++r) {
      copy_on_device(stream, all.row(cache.length + r), added.row(r), static_cast<std::size_t>(added.cols) * sizeof(T));
    }
    added = all;
  };
  const std::int64_t rows = k.rows;
  append(cache.keys, k);
  append(cache.values, v);
  cache.length += rows;
}

/// Places for what forward keeps besides its inputs.
template <class Saved>
void make_results(const Stream& stream, const RotaryAttention& op, const Tensor& x, Saved& saved) {
  const std::int64_t tokens = x.shape()[0];
  require(tokens % op.seq_len == 0, "{} tokens are no whole number of sequences of {}", tokens, op.seq_len);
  require(!op.cache || tokens == op.seq_len, "{} tokens that continue one sequence, in pieces of {}", tokens,
          op.seq_len);
  saved.out = Tensor::empty(stream, x.dtype(), {tokens, op.heads * op.head_dim});
  saved.log_sum_exp = Tensor::empty(stream, accumulator_of(x.dtype()), {tokens, op.heads});
}

template <class T, class Saved>
void attend(const Stream& stream, const RotaryAttention& op, Columns<T> columns, const Saved& saved) {
  const std::int64_t past = op.cache ? op.cache->length : 0;
  if (!op.rotated) rotate(stream, op, columns, past, false);
  if (op.cache) continue_from(stream, *op.cache, columns.k, columns.v);
  launch(stream, AttentionForward<T>{.shape = shape_of(op, columns.q.rows, past),
                                     .q = columns.q,
                                     .k = columns.k,
                                     .v = columns.v,
                                     .out = saved.out.template matrix<T>(),
                                     .log_sum_exp = saved.log_sum_exp.template matrix<Accumulator<T>>(),
                                     .scale = scale_of(op)});
}

template <class T, class Saved>
void attend_backward(const Stream& stream, const RotaryAttention& op, const Columns<T>& columns, const Saved& saved,
                     const Tensor& dy, const Columns<T>& d_columns) {
  require(!op.cache, "the gradient of attention to a cache");
  launch(stream, AttentionBackward<T>{.shape = shape_of(op, columns.q.rows),
                                      .q = columns.q,
                                      .k = columns.k,
                                      .v = columns.v,
                                      .out = saved.out.template matrix<T>(),
                                      .d_out = dy.matrix<T>(),
                                      .log_sum_exp = saved.log_sum_exp.template matrix<Accumulator<T>>(),
                                      .dq = d_columns.q,
                                      .dk = d_columns.k,
                                      .dv = d_columns.v,
                                      .scale = scale_of(op)});
  rotate(stream, op, d_columns, 0, true);
}

}  // namespace

Tensor RotaryAttention::forward(const Stream& stream, Saved& saved, const Tensor& qkv) const {
  saved.qkv = qkv;
  make_results(stream, *this, qkv, saved);
  dispatch_float(qkv.dtype(), [&]<class T>() { attend(stream, *this, columns_of<T>(*this, qkv), saved); });
  return saved.out;
}

std::array<Tensor, 1> RotaryAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor d_qkv = Tensor::empty(stream, dy.dtype(), saved.qkv.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    attend_backward(stream, *this, columns_of<T>(*this, saved.qkv), saved, dy, columns_of<T>(*this, d_qkv));
  });
  return {d_qkv};
}

Tensor SplitRotaryAttention::forward(const Stream& stream, Saved& saved, const Tensor& q, const Tensor& kv) const {
  saved.q = q;
  saved.kv = kv;
  make_results(stream, attention, q, saved);
  dispatch_float(q.dtype(), [&]<class T>() { attend(stream, attention, columns_of<T>(attention, q, kv), saved); });
  return saved.out;
}

std::array<Tensor, 2> SplitRotaryAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dq = Tensor::empty(stream, dy.dtype(), saved.q.shape()),
               d_kv = Tensor::empty(stream, dy.dtype(), saved.kv.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    attend_backward(stream, attention, columns_of<T>(attention, saved.q, saved.kv), saved, dy,
                    columns_of<T>(attention, dq, d_kv));
  });
  return {dq, d_kv};
}

}  // namespace lyceum
