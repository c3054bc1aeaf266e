#include "autograd/attention.h"

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/largest_logits.h"
#include "kernels/attention_sinks.h"
#include "kernels/bias.h"
#include "kernels/rope.h"
#include "kernels/stick_breaking.h"

namespace lyceum {

namespace {

/// Views of queries, keys and values in the projections, and of the columns that rotary positions rotate.
template <class T>
struct Columns {
  Matrix<T> q, k, v;
  std::vector<Matrix<T>> rotated;
};

/// Numbers of columns of q, k and v.
struct Widths {
  std::int64_t q, k, v;
};

template <class Op>
std::int64_t value_dim_of(const Op& op) {
  return op.value_dim > 0 ? op.value_dim : op.head_dim;
}

template <class Op>
Widths widths_of(const Op& op) {
  return {op.heads * op.head_dim, op.kv_heads * op.head_dim, op.kv_heads * value_dim_of(op)};
}

template <class Op>
void require_width(const Op& op, const Tensor& projections, std::int64_t width) {
  require(projections.shape()[1] == width,
          "projections {} do not match {} heads of width {} with {} key and value heads of width {}",
          projections.shape(), op.heads, op.head_dim, op.kv_heads, value_dim_of(op));
}

template <class T, class Op>
Columns<T> columns_of(const Op& op, const Tensor& qkv) {
  const Matrix<T> all = qkv.matrix<T>();
  const auto [q, k, v] = widths_of(op);
  require_width(op, qkv, q + k + v);
  return {all.cols_from(0, q), all.cols_from(q, k), all.cols_from(q + k, v), {all.cols_from(0, q + k)}};
}

template <class T, class Op>
Columns<T> columns_of(const Op& op, const Tensor& q, const Tensor& kv) {
  const Matrix<T> queries = q.matrix<T>(), all = kv.matrix<T>();
  const Widths widths = widths_of(op);
  require_width(op, q, widths.q);
  require_width(op, kv, widths.k + widths.v);
  const Matrix<T> keys = all.cols_from(0, widths.k);
  return {queries, keys, all.cols_from(widths.k, widths.v), {queries, keys}};
}

/// Returns the number of positions in the cache, 0 without one. Throws an Error unless the tokens are whole sequences
/// or, with a cache, one sequence of one document.
template <class Op>
std::int64_t past_of(const Op& op, std::int64_t tokens) {
  require(tokens % op.seq_len == 0, "{} tokens are not a whole number of sequences of {}", tokens, op.seq_len);
  require(!op.cache || tokens == op.seq_len,
          "{} tokens continue a cache: they must be one sequence, not sequences of {}", tokens, op.seq_len);
  require(!op.cache || !op.first_keys.defined(), "a sequence that continues a cache must be one document");
  return op.cache ? op.cache->length : 0;
}

std::int64_t window_of(const RotaryAttention& op) { return op.window; }
std::int64_t window_of(const StickBreakingAttention&) { return 0; }

/// Returns the shape for the kernels. `key_len`: keys per sequence.
template <class Op>
AttentionShape shape_of(const Op& op, std::int64_t tokens, std::int64_t key_len) {
  return {tokens / op.seq_len, op.seq_len, key_len, op.heads, op.kv_heads, op.head_dim, window_of(op), op.value_dim};
}

/// Views of the keys and values that queries attend to.
template <class T>
struct SeenRows {
  std::int64_t key_len;          // per sequence
  std::array<Tensor, 2> joined;  // see continue_from()

  /// Appends k and v of `columns` to the cache, if there is one, and replaces them by views of all that queries see.
  template <class Op>
  SeenRows(const Stream& stream, const Op& op, Columns<T>& columns) : key_len(op.seq_len) {
    if (!op.cache) return;
    require(op.cache->window == window_of(op), "a cache for a window of {} with one of {}", op.cache->window,
            window_of(op));
    joined = continue_from(stream, *op.cache, columns.k, columns.v);
    key_len = columns.k.rows;
  }
};

template <class Op>
FirstKeys first_keys_of(const Op& op) {
  return op.first_keys.defined() ? op.first_keys.template span<const std::int32_t>() : FirstKeys();
}

template <class Op>
double scale_of(const Op& op) {
  return 1 / std::sqrt(static_cast<double>(op.head_dim));
}

template <class T>
void rotate(const Stream& stream, const RotaryAttention& op, const Columns<T>& columns, std::int64_t past,
            bool inverse) {
  for (const Matrix<T>& x : columns.rotated) {
    launch(stream, Rope<T>{.x = x,
                           .table = op.rope_table.matrix<Accumulator<T>>(),
                           .seq_len = op.seq_len,
                           .first_position = past,
                           .inverse = inverse,
                           .first_keys = first_keys_of(op),
                           .head_dim = op.head_dim,
                           .layout = op.rope_layout});
  }
}

/// Computes `out`. Rotates q and k in place unless they are rotated already; with a cache, appends k and v to it and
/// attends to all its positions.
template <class T>
void attend(const Stream& stream, const RotaryAttention& op, Columns<T> columns, std::int64_t past, const Tensor& out,
            AttentionResults& results) {
  results = {.out = out, .row_sums = Tensor::empty(stream, dtype_of<Accumulator<T>>, {columns.q.rows, op.heads})};
  if (!op.rotated) rotate(stream, op, columns, past, false);
  const SeenRows<T> seen(stream, op, columns);
  const LargestLogits<Accumulator<T>> logits(stream, op.largest_logits, columns.q.rows);
  launch(stream, AttentionForward<T>{.shape = shape_of(op, columns.q.rows, seen.key_len),
                                     .q = columns.q,
                                     .k = columns.k,
                                     .v = columns.v,
                                     .out = out.matrix<T>(),
                                     .log_sum_exp = results.row_sums.matrix<Accumulator<T>>(),
                                     .scale = scale_of(op),
                                     .first_keys = first_keys_of(op),
                                     .largest = logits.of_queries()});
  logits.raise(stream);
  if (!op.sinks) return;
  launch(stream, ApplySinks<T>{.sinks = op.sinks->value.template span<const T>(),
                               .out = out.matrix<T>(),
                               .log_sum_exp = results.row_sums.matrix<Accumulator<T>>()});
}

template <class T>
void attend(const Stream& stream, const StickBreakingAttention& op, Columns<T> columns, std::int64_t, const Tensor& out,
            AttentionResults& results) {
  results.row_sums = Tensor::empty(stream, DType::f64, {columns.q.rows, op.heads});
  const SeenRows<T> seen(stream, op, columns);
  launch(stream, StickBreakingForward<T>{.shape = shape_of(op, columns.q.rows, seen.key_len),
                                         .q = columns.q,
                                         .k = columns.k,
                                         .v = columns.v,
                                         .out = out.matrix<T>(),
                                         .log_rest = results.row_sums.matrix<double>(),
                                         .scale = scale_of(op),
                                         .first_keys = first_keys_of(op)});
}

/// Adds the gradient of the sinks: the sum over all tokens of SinkGradients.
template <class T>
void add_sink_gradient(const Stream& stream, const RotaryAttention& op, const AttentionResults& results,
                       const Tensor& dy) {
  using A = Accumulator<T>;
  const Tensor of_tokens = Tensor::empty(stream, dtype_of<A>, results.row_sums.shape());
  launch(stream, SinkGradients<T>{.sinks = op.sinks->value.template span<const T>(),
                                  .out = results.out.matrix<T>(),
                                  .d_out = dy.matrix<T>(),
                                  .log_sum_exp = results.row_sums.matrix<A>(),
                                  .d_sinks = of_tokens.matrix<A>()});
  launch(stream, BiasGrad<A>{.dy = of_tokens.matrix<A>(), .d_bias = op.sinks->gradient.template span<A>()});
}

template <class T>
void attend_backward(const Stream& stream, const RotaryAttention& op, const Columns<T>& columns,
                     const AttentionResults& results, const Tensor& dy, const Columns<T>& d_columns) {
  if (op.sinks && op.sinks->trained()) add_sink_gradient<T>(stream, op, results, dy);
  launch(stream, AttentionBackward<T>{.shape = shape_of(op, columns.q.rows, op.seq_len),
                                      .q = columns.q,
                                      .k = columns.k,
                                      .v = columns.v,
                                      .out = results.out.matrix<T>(),
                                      .d_out = dy.matrix<T>(),
                                      .log_sum_exp = results.row_sums.matrix<Accumulator<T>>(),
                                      .dq = d_columns.q,
                                      .dk = d_columns.k,
                                      .dv = d_columns.v,
                                      .scale = scale_of(op),
                                      .first_keys = first_keys_of(op)});
  rotate(stream, op, d_columns, 0, true);
}

template <class T>
void attend_backward(const Stream& stream, const StickBreakingAttention& op, const Columns<T>& columns,
                     const AttentionResults& results, const Tensor& dy, const Columns<T>& d_columns) {
  launch(stream, StickBreakingBackward<T>{.shape = shape_of(op, columns.q.rows, op.seq_len),
                                          .q = columns.q,
                                          .k = columns.k,
                                          .v = columns.v,
                                          .d_out = dy.matrix<T>(),
                                          .log_rest = results.row_sums.matrix<double>(),
                                          .dq = d_columns.q,
                                          .dk = d_columns.k,
                                          .dv = d_columns.v,
                                          .scale = scale_of(op),
                                          .first_keys = first_keys_of(op)});
}

/// Allocates and returns the result. `projections`: qkv, or q and kv.
template <class Op, class... Projections>
Tensor forward_of(const Stream& stream, const Op& op, AttentionResults& results, const Projections&... projections) {
  const Tensor& first = std::get<0>(std::tie(projections...));
  const std::int64_t tokens = first.shape()[0], past = past_of(op, tokens);
  const Tensor out = Tensor::empty(stream, first.dtype(), {tokens, op.heads * value_dim_of(op)});
  dispatch_float(first.dtype(),
                 [&]<class T>() { attend(stream, op, columns_of<T>(op, projections...), past, out, results); });
  return out;
}

template <class Op, class... Projections>
std::array<Tensor, sizeof...(Projections)> backward_of(const Stream& stream, const Op& op,
                                                       const AttentionResults& results, const Tensor& dy,
                                                       const Projections&... projections) {
  require(!op.cache, "attention with a cache has no backward pass");
  const std::array gradients{Tensor::empty(stream, dy.dtype(), projections.shape())...};
  dispatch_float(dy.dtype(), [&]<class T>() {
    const auto columns = [&](const auto&... of) { return columns_of<T>(op, of...); };
    attend_backward(stream, op, columns(projections...), results, dy, std::apply(columns, gradients));
  });
  return gradients;
}

}  // namespace

Tensor RotaryAttention::forward(const Stream& stream, Saved& saved, const Tensor& qkv) const {
  saved.qkv = qkv;
  return forward_of(stream, *this, saved.results, qkv);
}

std::array<Tensor, 1> RotaryAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  return backward_of(stream, *this, saved.results, dy, saved.qkv);
}

Tensor StickBreakingAttention::forward(const Stream& stream, Saved& saved, const Tensor& qkv) const {
  saved.qkv = qkv;
  return forward_of(stream, *this, saved.results, qkv);
}

std::array<Tensor, 1> StickBreakingAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  return backward_of(stream, *this, saved.results, dy, saved.qkv);
}

template <class Attention>
Tensor SplitProjections<Attention>::forward(const Stream& stream, Saved& saved, const Tensor& q,
                                            const Tensor& kv) const {
  if constexpr (requires { attention.sinks; }) require(!attention.sinks, "sinks of attention to separate projections");
  saved.q = q;
  saved.kv = kv;
  return forward_of(stream, attention, saved.results, q, kv);
}

template <class Attention>
std::array<Tensor, 2> SplitProjections<Attention>::backward(const Stream& stream, Saved& saved,
                                                            const Tensor& dy) const {
  return backward_of(stream, attention, saved.results, dy, saved.q, saved.kv);
}

template struct SplitProjections<RotaryAttention>;
template struct SplitProjections<StickBreakingAttention>;

}  // namespace lyceum
