#include "autograd/latent_attention.h"

#include <utility>

#include "autograd/cast.h"
#include "autograd/largest_logits.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/head_columns.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace lyceum {

namespace {

/// Returns a matrix as the only head of HeadColumns.
template <class T>
HeadColumns<T> as_one_head(const Matrix<T>& matrix) {
  return {matrix, 0, 0, matrix.cols};
}

template <class T>
void copy_columns(const Stream& stream, const Matrix<const T>& from, const Matrix<T>& to) {
  launch(stream, CopyHeads<T>{.heads = 1, .from = as_one_head(from), .to = as_one_head(to)});
}

FirstKeys latent_first_keys_of(const LatentAttention& op) {
  return op.first_keys.defined() ? op.first_keys.span<const std::int32_t>() : FirstKeys();
}

/// Rotates rope_dim columns of every head of x, from column `first` of the head on. `past`: position of the first row.
template <class T>
void rotate_heads(const Stream& stream, const LatentAttention& op, const Matrix<T>& x, std::int64_t head_dim,
                  std::int64_t first, std::int64_t past, bool inverse) {
  launch(stream, Rope<T>{.x = x,
                         .table = op.rope_table.matrix<Accumulator<T>>(),
                         .seq_len = op.seq_len,
                         .first_position = past,
                         .inverse = inverse,
                         .first_keys = latent_first_keys_of(op),
                         .head_dim = head_dim,
                         .layout = op.rope_layout,
                         .first_column = first});
}

template <class T>
void rotate_queries(const Stream& stream, const LatentAttention& op, const Matrix<T>& q, std::int64_t past,
                    bool inverse) {
  rotate_heads(stream, op, q, op.heads.head_dim(), op.heads.nope_dim, past, inverse);
}

/// Returns the rotated shared keys [tokens, rope_dim].
template <class T>
Tensor rotated_key(const Stream& stream, const LatentAttention& op, const Tensor& key, std::int64_t past) {
  Tensor turned = Tensor::empty(stream, key.dtype(), key.shape());
  copy_columns<T>(stream, key.matrix<T>(), turned.matrix<T>());
  rotate_heads(stream, op, turned.matrix<T>(), op.heads.rope_dim, 0, past, false);
  return turned;
}

/// The parts of the heads of keys and values, in the layouts of AttentionForward and of kv.
template <class T>
struct HeadParts {
  HeadColumns<T> k_nope, k_rope;     // of k [tokens, heads · head_dim()]
  HeadColumns<T> v;                  // of v [tokens, heads · value_dim]
  HeadColumns<T> up_nope, up_value;  // of kv [tokens, heads · up_dim()]

  HeadParts(const LatentHeads& heads, const Matrix<T>& k, const Matrix<T>& values, const Matrix<T>& kv)
      : k_nope(k, 0, heads.head_dim(), heads.nope_dim),
        k_rope(k, heads.nope_dim, heads.head_dim(), heads.rope_dim),
        v(values, 0, heads.value_dim, heads.value_dim),
        up_nope(kv, 0, heads.up_dim(), heads.nope_dim),
        up_value(kv, heads.nope_dim, heads.up_dim(), heads.value_dim) {}
};

/// Keys and values of all heads.
struct KeysValues {
  Tensor k, v;

  KeysValues(const Stream& stream, const LatentHeads& heads, DType type, std::int64_t tokens)
      : k(Tensor::empty(stream, type, {tokens, heads.heads * heads.head_dim()})),
        v(Tensor::empty(stream, type, {tokens, heads.heads * heads.value_dim})) {}
};

/// Returns the keys and values of `kv` and of the rotated shared keys [tokens, rope_dim].
template <class T>
KeysValues join_heads(const Stream& stream, const LatentHeads& heads, const Tensor& kv, const Matrix<const T>& shared) {
  KeysValues joined(stream, heads, kv.dtype(), kv.shape()[0]);
  const HeadParts<T> parts(heads, joined.k.matrix<T>(), joined.v.matrix<T>(), kv.matrix<T>());
  const HeadColumns<const T> same_key(shared, 0, 0, heads.rope_dim);
  launch(stream, CopyHeads<T>{.heads = heads.heads, .from = parts.up_nope, .to = parts.k_nope});
  launch(stream, CopyHeads<T>{.heads = heads.heads, .from = same_key, .to = parts.k_rope});
  launch(stream, CopyHeads<T>{.heads = heads.heads, .from = parts.up_value, .to = parts.v});
  return joined;
}

/// Splits the gradients of keys and values into those of kv and of the rotated shared keys.
template <class T>
void split_heads(const Stream& stream, const LatentHeads& heads, const KeysValues& gradients, const Tensor& d_kv,
                 const Tensor& d_shared) {
  const HeadParts<T> parts(heads, gradients.k.matrix<T>(), gradients.v.matrix<T>(), d_kv.matrix<T>());
  launch(stream, CopyHeads<T>{.heads = heads.heads, .from = parts.k_nope, .to = parts.up_nope});
  launch(stream, CopyHeads<T>{.heads = heads.heads, .from = parts.v, .to = parts.up_value});
  launch(stream, SumHeads<T>{.heads = heads.heads, .from = parts.k_rope, .to = d_shared.matrix<T>()});
}

/// Returns the shape for the kernels, with a key head for each query head. `key_len`: keys per sequence.
AttentionShape latent_shape_of(const LatentAttention& op, std::int64_t tokens, std::int64_t key_len) {
  return {.sequences = tokens / op.seq_len,
          .query_len = op.seq_len,
          .key_len = key_len,
          .heads = op.heads.heads,
          .kv_heads = op.heads.heads,
          .head_dim = op.heads.head_dim(),
          .window = op.window,
          .value_dim = op.heads.value_dim};
}

void require_latents(const LatentAttention& op, const Tensor& q, std::int64_t kv_cols, const Tensor& key) {
  const LatentHeads& heads = op.heads;
  const std::int64_t tokens = q.shape()[0];
  require(tokens % op.seq_len == 0, "{} tokens are not a whole number of sequences of {}", tokens, op.seq_len);
  require(
      q.shape()[1] == heads.heads * heads.head_dim() && kv_cols == heads.heads * heads.up_dim() &&
          key.shape() == Shape({tokens, heads.rope_dim}),
      "queries {}, {} columns of keys and values and shared keys {} do not match {} heads of {} + {} and {} columns",
      q.shape(), kv_cols, key.shape(), heads.heads, heads.nope_dim, heads.rope_dim, heads.value_dim);
}

template <class T>
void attend_to(const Stream& stream, const LatentAttention& op, const AttentionShape& shape, const Matrix<T>& q,
               const Matrix<const T>& k, const Matrix<const T>& v, const Matrix<T>& out, const Tensor& log_sum_exp) {
  const LargestLogits<Accumulator<T>> logits(stream, op.largest_logits, q.rows);
  launch(stream, AttentionForward<T>{.shape = shape,
                                     .q = q,
                                     .k = k,
                                     .v = v,
                                     .out = out,
                                     .log_sum_exp = log_sum_exp.matrix<Accumulator<T>>(),
                                     .scale = op.scale,
                                     .first_keys = latent_first_keys_of(op),
                                     .largest = logits.of_queries()});
  logits.raise(stream);
}

Tensor make_log_sum_exp(const Stream& stream, const LatentAttention& op, DType type, std::int64_t tokens) {
  return Tensor::empty(stream, accumulator_of(type), {tokens, op.heads.heads});
}

/// Attends to all positions of a cache, whose rows are `rows` [positions, rank + rope_dim], with keys and values of all
/// heads.
template <class T>
void attend_expanded(const Stream& stream, const CachedLatentAttention& op, const Matrix<T>& q,
                     const Matrix<const T>& rows, const Tensor& out) {
  const LatentHeads& heads = op.attention.heads;
  const std::int64_t rank = op.up->shape[1];
  const Tensor kv = Tensor::empty(stream, out.dtype(), {rows.rows, heads.heads * heads.up_dim()});
  launch(
      stream,
      Gemm<T>{.a = rows.cols_from(0, rank), .b = op.up->value.matrix<T>(), .c = kv.matrix<T>(), .transpose_b = true});
  const KeysValues joined = join_heads<T>(stream, heads, kv, rows.cols_from(rank, heads.rope_dim));
  attend_to<T>(stream, op.attention, latent_shape_of(op.attention, q.rows, rows.rows), q, joined.k.matrix<T>(),
               joined.v.matrix<T>(), out.matrix<T>(), make_log_sum_exp(stream, op.attention, out.dtype(), q.rows));
}

/// Does what attend_expanded() does with W absorbed into queries and results: all heads share the cache's rows as keys,
/// and the latents in them as values.
template <class T>
void attend_absorbed(const Stream& stream, const CachedLatentAttention& op, const Matrix<T>& q,
                     const Matrix<const T>& rows, const Tensor& out) {
  const LatentHeads& heads = op.attention.heads;
  const std::int64_t rank = op.up->shape[1], width = rank + heads.rope_dim;
  const Matrix<const T> weights = op.up->value.matrix<T>();
  const auto allocate = [&](std::int64_t cols) {
    return Tensor::empty(stream, out.dtype(), {q.rows, heads.heads * cols});
  };
  const Tensor queries = allocate(width), sums = allocate(rank);
  const HeadColumns<const T> nope(q, 0, heads.head_dim(), heads.nope_dim),
      rope(q, heads.nope_dim, heads.head_dim(), heads.rope_dim), latent_sums(sums.matrix<T>(), 0, rank, rank);
  launch(stream, MultiplyHeads<T>{.heads = heads.heads,
                                  .x = nope,
                                  .weights = weights,
                                  .first_row = 0,
                                  .row_step = heads.up_dim(),
                                  .transpose = false,
                                  .y = {queries.matrix<T>(), 0, width, rank}});
  launch(stream,
         CopyHeads<T>{.heads = heads.heads, .from = rope, .to = {queries.matrix<T>(), rank, width, heads.rope_dim}});
  AttentionShape shape = latent_shape_of(op.attention, q.rows, rows.rows);
  shape.kv_heads = 1;
  shape.head_dim = width;
  shape.value_dim = rank;
  attend_to<T>(stream, op.attention, shape, queries.matrix<T>(), rows, rows.cols_from(0, rank), sums.matrix<T>(),
               make_log_sum_exp(stream, op.attention, out.dtype(), q.rows));
  launch(stream, MultiplyHeads<T>{.heads = heads.heads,
                                  .x = latent_sums,
                                  .weights = weights,
                                  .first_row = heads.nope_dim,
                                  .row_step = heads.up_dim(),
                                  .transpose = true,
                                  .y = {out.matrix<T>(), 0, heads.value_dim, heads.value_dim}});
}

}  // namespace

std::array<Tensor, 2> SplitLatent::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const std::int64_t tokens = x.shape()[0], rank = norm->shape[0], rope = x.shape()[1] - rank;
  require(rope > 0, "projections {} have no columns after a latent of {}", x.shape(), rank);
  std::array results{Tensor::empty(stream, x.dtype(), {tokens, rank}),
                     Tensor::empty(stream, x.dtype(), {tokens, rope})};
  saved = {.x = x, .inverse_rms = Tensor::empty(stream, accumulator_of(x.dtype()), {tokens})};
  const Tensor weight = cast(stream, norm->value, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, RmsNormForward<T>{.x = x.matrix<T>().cols_from(0, rank),
                                     .weight = weight.span<T>(),
                                     .y = results[0].matrix<T>(),
                                     .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                     .eps = eps});
    copy_columns<T>(stream, x.matrix<T>().cols_from(rank, rope), results[1].matrix<T>());
  });
  return results;
}

std::array<Tensor, 1> SplitLatent::backward(const Stream& stream, Saved& saved, const Tensor& d_latent,
                                            const Tensor& d_key) const {
  const Tensor& x = saved.x;
  const std::int64_t rank = norm->shape[0], rope = x.shape()[1] - rank;
  const bool whole = d_latent.defined() && d_key.defined();
  const Tensor dx = whole ? Tensor::empty(stream, x.dtype(), x.shape()) : Tensor::zeros(stream, x.dtype(), x.shape());
  const Tensor weight = cast(stream, norm->value, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    if (d_latent.defined()) {
      launch(stream, RmsNormBackward<T>{.x = x.matrix<T>().cols_from(0, rank),
                                        .dy = d_latent.matrix<T>(),
                                        .weight = weight.span<T>(),
                                        .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                        .dx = dx.matrix<T>().cols_from(0, rank)});
    }
    if (d_key.defined()) copy_columns<T>(stream, d_key.matrix<T>(), dx.matrix<T>().cols_from(rank, rope));
  });
  return {dx};
}

void SplitLatent::weight_grad(const Stream& stream, Saved& saved, const Tensor& d_latent, const Tensor&) const {
  if (!d_latent.defined()) return;
  dispatch_float(d_latent.dtype(), [&]<class T>() {
    launch(stream, RmsNormWeightGrad<T>{.x = saved.x.matrix<T>().cols_from(0, norm->shape[0]),
                                        .dy = d_latent.matrix<T>(),
                                        .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                        .d_weight = norm->gradient.span<Accumulator<T>>()});
  });
}

Tensor LatentAttention::forward(const Stream& stream, Saved& saved, const Tensor& q, const Tensor& kv,
                                const Tensor& key) const {
  require_latents(*this, q, kv.shape()[1], key);
  const std::int64_t tokens = q.shape()[0];
  const Tensor out = Tensor::empty(stream, q.dtype(), {tokens, heads.heads * heads.value_dim});
  saved = {.q = q,
           .kv = kv,
           .key = key,
           .results = {.out = out, .row_sums = make_log_sum_exp(stream, *this, q.dtype(), tokens)}};
  dispatch_float(q.dtype(), [&]<class T>() {
    if (!rotated) rotate_queries(stream, *this, q.matrix<T>(), 0, false);
    const KeysValues joined =
        join_heads<T>(stream, heads, kv, rotated_key<T>(stream, *this, key, 0).template matrix<T>());
    attend_to<T>(stream, *this, latent_shape_of(*this, tokens, seq_len), q.matrix<T>(), joined.k.matrix<T>(),
                 joined.v.matrix<T>(), out.matrix<T>(), saved.results.row_sums);
  });
  return out;
}

std::array<Tensor, 3> LatentAttention::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const auto& [q, kv, key, results] = saved;
  const std::int64_t tokens = q.shape()[0];
  std::array gradients{Tensor::empty(stream, q.dtype(), q.shape()), Tensor::empty(stream, q.dtype(), kv.shape()),
                       Tensor::empty(stream, q.dtype(), key.shape())};
  dispatch_float(q.dtype(), [&]<class T>() {
    const KeysValues joined =
        join_heads<T>(stream, heads, saved.kv, rotated_key<T>(stream, *this, saved.key, 0).template matrix<T>());
    const KeysValues d_joined(stream, heads, saved.q.dtype(), tokens);
    launch(stream, AttentionBackward<T>{.shape = latent_shape_of(*this, tokens, seq_len),
                                        .q = saved.q.matrix<T>(),
                                        .k = joined.k.matrix<T>(),
                                        .v = joined.v.matrix<T>(),
                                        .out = saved.results.out.matrix<T>(),
                                        .d_out = dy.matrix<T>(),
                                        .log_sum_exp = saved.results.row_sums.matrix<Accumulator<T>>(),
                                        .dq = gradients[0].matrix<T>(),
                                        .dk = d_joined.k.matrix<T>(),
                                        .dv = d_joined.v.matrix<T>(),
                                        .scale = scale,
                                        .first_keys = latent_first_keys_of(*this)});
    split_heads<T>(stream, heads, d_joined, gradients[1], gradients[2]);
    rotate_queries(stream, *this, gradients[0].matrix<T>(), 0, true);
    rotate_heads(stream, *this, gradients[2].matrix<T>(), heads.rope_dim, 0, 0, true);
  });
  return gradients;
}

bool CachedLatentAttention::absorbs(std::int64_t tokens, std::int64_t positions) const {
  const LatentHeads& heads = attention.heads;
  const std::int64_t rank = up->shape[1], products = rank * heads.up_dim(), pairs = tokens * positions;
  return tokens * products + pairs * (2 * rank + heads.rope_dim) <
         positions * products + pairs * (heads.head_dim() + heads.value_dim);
}

Tensor CachedLatentAttention::forward(const Stream& stream, Saved&, const Tensor& q, const Tensor& latent,
                                      const Tensor& key) const {
  const std::int64_t tokens = q.shape()[0], rank = up->shape[1], past = cache->length;
  require_latents(attention, q, up->shape[0], key);
  require(tokens == attention.seq_len && !attention.first_keys.defined(),
          "{} tokens continue a cache: they must be one sequence and one document", tokens);
  require(cache->window == attention.window, "a cache for a window of {} with one of {}", cache->window,
          attention.window);
  const Tensor added = Tensor::empty(stream, q.dtype(), {tokens, rank + attention.heads.rope_dim});
  const Tensor out = Tensor::empty(stream, q.dtype(), {tokens, attention.heads.heads * attention.heads.value_dim});
  dispatch_float(q.dtype(), [&]<class T>() {
    const Matrix<T> queries = q.matrix<T>();
    Matrix<T> rows = added.matrix<T>();
    rotate_queries(stream, attention, queries, past, false);
    copy_columns<T>(stream, latent.matrix<T>(), rows.cols_from(0, rank));
    copy_columns<T>(stream, rotated_key<T>(stream, attention, key, past).template matrix<T>(),
                    rows.cols_from(rank, attention.heads.rope_dim));
    const Tensor joined = continue_from(stream, *cache, rows);
    absorbs(tokens, rows.rows) ? attend_absorbed<T>(stream, *this, queries, rows, out)
                               : attend_expanded<T>(stream, *this, queries, rows, out);
  });
  return out;
}

std::array<Tensor, 3> CachedLatentAttention::backward(const Stream&, Saved&, const Tensor&) const {
  fail(ExitCode::failed, "attention with a cache has no backward pass");
}

}  // namespace lyceum
