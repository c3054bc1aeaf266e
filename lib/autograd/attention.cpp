#include "autograd/attention.h"

#include <cmath>

#include "core/copy.h"
#include "kernels/rope.h"
#include "kernels/stick_breaking.h"

namespace lyceum {

namespace {

template <class T>
struct Columns {
  Matrix<T> q, k, v, rotated;  // rotated: q and k together
};

template <class T, class Op>
Columns<T> columns_of(const Op& op, const Tensor& qkv) {
  const Matrix<T> all = qkv.matrix<T>();
  const std::int64_t q = op.heads * op.head_dim, kv = op.kv_heads * op.head_dim;
  require(all.cols == q + 2 * kv, "projections {} for {} + 2 · {} heads of {}", qkv.shape(), op.heads, op.kv_heads,
          op.head_dim);
  return {all.cols_from(0, q), all.cols_from(q, kv), all.cols_from(q + kv, kv), all.cols_from(0, q + kv)};
}

/// Positions before those of qkv, whose rows must be whole sequences, or one that continues a cache's.
template <class Op>
std::int64_t past_of(const Op& op, const Tensor& qkv) {
  const std::int64_t tokens = qkv.shape()[0];
  require(tokens % op.seq_len == 0, "{} tokens are no whole number of sequences of {}", tokens, op.seq_len);
  require(!op.cache || tokens == op.seq_len, "{} tokens that continue one sequence, in pieces of {}", tokens,
          op.seq_len);
  return op.cache ? op.cache->length : 0;
}

template <class Op>
AttentionShape shape_of(const Op& op, const Tensor& qkv, std::int64_t past = 0) {
  return {qkv.shape()[0] / op.seq_len, op.seq_len, past + op.seq_len, op.heads, op.kv_heads, op.head_dim};
}

template <class Op>
double scale_of(const Op& op) {
  return 1 / std::sqrt(static_cast<double>(op.head_dim));
}

template <class T>
void rotate(const Stream& stream, const RotaryAttention& op, Matrix<T> x, std::int64_t past, bool inverse) {
  launch(stream, Rope<T>{.x = x,
                         .table = op.rope_table.matrix<Accumulator<T>>(),
                         .seq_len = op.seq_len,
                         .first_position = past,
                         .inverse = inverse});
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

}  // namespace

Tensor RotaryAttention::forward(const Stream& stream, Saved& saved, const Tensor& qkv) const {
  const std::int64_t tokens = qkv.shape()[0], past = past_of(*this, qkv);
  saved = {.qkv = qkv,
           .out = Tensor::empty(stream, qkv.dtype(), {tokens, heads * head_dim}),
           .log_sum_exp = Tensor::empty(stream, accumulator_of(qkv.dtype()), {tokens, heads})};
  dispatch_float(qkv.dtype(), [&]<class T>() {
    Columns<T> columns = columns_of<T>(*this, qkv);
    if (!rotated) rotate<T>(stream, *this, columns.rotated, past, false);
    if (cache) continue_from(stream, *cache, columns.k, columns.v);
    launch(stream, AttentionForward<T>{.shape = shape_of(*this, qkv, past),
                                       .q = columns.q,
                                       .k = columns.k,
                                       .v = columns.v,
                                       .out = saved.out.matrix<T>(),
                                       .log_sum_exp = saved.log_sum_exp.matrix<Accumulator<T>>(),
                                       .scale = scale_of(*this)});
  });
  return saved.out;
}

std::array<Tensor, 1> RotaryAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  require(!cache, "the gradient of attention to a cache");
  const Tensor d_qkv = Tensor::empty(stream, dy.dtype(), saved.qkv.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    const Columns<T> columns = columns_of<T>(*this, saved.qkv), d_columns = columns_of<T>(*this, d_qkv);
    launch(stream, AttentionBackward<T>{.shape = shape_of(*this, saved.qkv),
                                        .q = columns.q,
                                        .k = columns.k,
                                        .v = columns.v,
                                        .out = saved.out.matrix<T>(),
                                        .d_out = dy.matrix<T>(),
                                        .log_sum_exp = saved.log_sum_exp.matrix<Accumulator<T>>(),
                                        .dq = d_columns.q,
                                        .dk = d_columns.k,
                                        .dv = d_columns.v,
                                        .scale = scale_of(*this)});
    rotate<T>(stream, *this, d_columns.rotated, 0, true);
  });
  return {d_qkv};
}

Tensor StickBreakingAttention::forward(const Stream& stream, Saved& saved, const Tensor& qkv) const {
  const std::int64_t tokens = qkv.shape()[0], past = past_of(*this, qkv);
  const Tensor out = Tensor::empty(stream, qkv.dtype(), {tokens, heads * head_dim});
  saved = {.qkv = qkv, .log_rest = Tensor::empty(stream, DType::f64, {tokens, heads})};
  dispatch_float(qkv.dtype(), [&]<class T>() {
    Columns<T> columns = columns_of<T>(*this, qkv);
    if (cache) continue_from(stream, *cache, columns.k, columns.v);
    launch(stream, StickBreakingForward<T>{.shape = shape_of(*this, qkv, past),
                                           .q = columns.q,
                                           .k = columns.k,
                                           .v = columns.v,
                                           .out = out.matrix<T>(),
                                           .log_rest = saved.log_rest.matrix<double>(),
                                           .scale = scale_of(*this)});
  });
  return out;
}

std::array<Tensor, 1> StickBreakingAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  require(!cache, "the gradient of attention to a cache");
  const Tensor d_qkv = Tensor::empty(stream, dy.dtype(), saved.qkv.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    const Columns<T> columns = columns_of<T>(*this, saved.qkv), d_columns = columns_of<T>(*this, d_qkv);
    launch(stream, StickBreakingBackward<T>{.shape = shape_of(*this, saved.qkv),
                                            .q = columns.q,
                                            .k = columns.k,
                                            .v = columns.v,
                                            .d_out = dy.matrix<T>(),
                                            .log_rest = saved.log_rest.matrix<double>(),
                                            .dq = d_columns.q,
                                            .dk = d_columns.k,
                                            .dv = d_columns.v,
                                            .scale = scale_of(*this)});
  });
  return {d_qkv};
}

}  // namespace lyceum
