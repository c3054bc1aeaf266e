#include "autograd/attention.h"

#include <cmath>

#include "kernels/rope.h"

namespace lyceum {

namespace {

template <class T>
struct Columns {
  Matrix<T> q, k, v, rotated;  // rotated: q and k together
};

template <class T>
Columns<T> columns_of(const RotaryAttention& op, const Tensor& qkv) {
  const Matrix<T> all = qkv.matrix<T>();
  const std::int64_t q = op.heads * op.head_dim, kv = op.kv_heads * op.head_dim;
  require(all.cols == q + 2 * kv, "projections {} for {} + 2 · {} heads of {}", qkv.shape(), op.heads, op.kv_heads,
          op.head_dim);
  return {all.cols_from(0, q), all.cols_from(q, kv), all.cols_from(q + kv, kv), all.cols_from(0, q + kv)};
}

AttentionShape shape_of(const RotaryAttention& op, const Tensor& qkv) {
  return {qkv.shape()[0] / op.seq_len, op.seq_len, op.seq_len, op.heads, op.kv_heads, op.head_dim};
}

double scale_of(const RotaryAttention& op) { return 1 / std::sqrt(static_cast<double>(op.head_dim)); }

template <class T>
void rotate(const Stream& stream, const RotaryAttention& op, Matrix<T> x, bool inverse) {
  launch(stream,
         Rope<T>{.x = x, .table = op.rope_table.matrix<Accumulator<T>>(), .seq_len = op.seq_len, .inverse = inverse});
}

}  // namespace

Tensor RotaryAttention::forward(const Stream& stream, Saved& saved, const Tensor& qkv) const {
  const std::int64_t tokens = qkv.shape()[0];
  require(tokens % seq_len == 0, "{} tokens are no whole number of sequences of {}", tokens, seq_len);
  saved = {.qkv = qkv,
           .out = Tensor::empty(stream, qkv.dtype(), {tokens, heads * head_dim}),
           .log_sum_exp = Tensor::empty(stream, accumulator_of(qkv.dtype()), {tokens, heads})};
  dispatch_float(qkv.dtype(), [&]<class T>() {
    const Columns<T> columns = columns_of<T>(*this, qkv);
    if (!rotated) rotate<T>(stream, *this, columns.rotated, false);
    launch(stream, AttentionForward<T>{.shape = shape_of(*this, qkv),
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
    rotate<T>(stream, *this, d_columns.rotated, true);
  });
  return {d_qkv};
}

}  // namespace lyceum
