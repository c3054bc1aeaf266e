#include "autograd/attention.h"

#include <cmath>

#include "autograd/linear.h"
#include "core/copy.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"
#include "model/layers.h"

namespace lyceum {

AttentionLayer::AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor,
                               ParameterUnit& unit)
    : heads_(config.heads / tensor.size()), kv_heads_(config.kv_heads / tensor.size()), head_dim_(config.head_dim) {
  require_usage(heads_ * tensor.size() == config.heads && kv_heads_ * tensor.size() == config.kv_heads,
                "model.heads = {} and model.kv_heads = {} do not divide among parallel.tensor = {} ranks", config.heads,
                config.kv_heads, tensor.size());
  const std::int64_t queries = heads_ * head_dim_, keys = kv_heads_ * head_dim_;
  const auto rows = [&](const char* name, std::int64_t own) {
    return RowsOf{prefix + name, own * tensor.size(), {own * tensor.rank(), own}};
  };
  qkv_ = &unit.add(stacked_parameter(
      prefix + "/qkv", {rows("/q_proj/weight", queries), rows("/k_proj/weight", keys), rows("/v_proj/weight", keys)},
      config.hidden, config.init_std));
  out_ = &unit.add(sharded_parameter(prefix + "/o_proj/weight", {config.hidden, queries * tensor.size()}, 1,
                                     {queries * tensor.rank(), queries}, config.init_std));
}

Variable AttentionLayer::forward(Tape& tape, const TokenLayout& layout, const Variable& x, const Tensor& rope) const {
  const Variable all = layout.to_matrix(tape, x), qkv = tape.apply(Linear{qkv_}, all);
  layout.release_matrix(tape, all, x);
  RotaryAttention attention{
      .seq_len = layout.seq_len(), .heads = heads_, .kv_heads = kv_heads_, .head_dim = head_dim_, .rope_table = rope};
  const Variable attended = tape.apply(attention, qkv), out = tape.apply(Linear{out_}, attended);
  attention.rotated = true;
  tape.release(attended, attention, qkv);
  return layout.from_matrix(tape, out);
}

Tensor AttentionLayer::decode(const Stream& stream, const Tensor& x, KeyValueCache& cache, const Tensor& rope) const {
  Linear::Saved unused;
  const std::int64_t tokens = x.shape()[0], queries = heads_ * head_dim_, keys = key_width();
  const Tensor qkv = Linear{qkv_}.forward(stream, unused, x);
  const Tensor out = Tensor::empty(stream, x.dtype(), {tokens, queries});
  const Tensor log_sum_exp = Tensor::empty(stream, accumulator_of(x.dtype()), {tokens, heads_});
  dispatch_float(x.dtype(), [&]<class T>() {
    const Matrix<T> all = qkv.matrix<T>();
    launch(stream, Rope<T>{.x = all.cols_from(0, queries + keys),
                           .table = rope.matrix<Accumulator<T>>(),
                           .seq_len = tokens,
                           .first_position = cache.length});
    const auto bytes = static_cast<std::size_t>(keys) * sizeof(T);
    for (std::int64_t t = 0; t < tokens; ++t) {
      copy_on_device(stream, cache.keys.matrix<T>().row(cache.length + t), all.row(t) + queries, bytes);
      copy_on_device(stream, cache.values.matrix<T>().row(cache.length + t), all.row(t) + queries + keys, bytes);
    }
    cache.length += tokens;
    launch(stream, AttentionForward<T>{.shape = {1, tokens, cache.length, heads_, kv_heads_, head_dim_},
                                       .q = all.cols_from(0, queries),
                                       .k = cache.keys.matrix<T>().rows_from(0, cache.length),
                                       .v = cache.values.matrix<T>().rows_from(0, cache.length),
                                       .out = out.matrix<T>(),
                                       .log_sum_exp = log_sum_exp.matrix<Accumulator<T>>(),
                                       .scale = 1 / std::sqrt(static_cast<double>(head_dim_))});
  });
  return Linear{out_}.forward(stream, unused, out);
}

}  // namespace lyceum
