#include "autograd/attention.h"

#include "autograd/linear.h"
#include "model/layers.h"

namespace lyceum {

AttentionLayer::AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor,
                               ParameterUnit& unit)
    : heads_(config.heads / tensor.size()),
      kv_heads_(config.kv_heads / tensor.size()),
      head_dim_(config.head_dim),
      weights_(config.attention_weights) {
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

Sublayer::Result AttentionLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable all = layout.to_matrix(tape, x), qkv = tape.apply(Linear{qkv_}, all);
  layout.release_matrix(tape, all, x);
  const auto project = [&](const auto& attention, const auto& again) {
    const Variable attended = tape.apply(attention, qkv), out = tape.apply(Linear{out_}, attended);
    tape.release(attended, again, qkv);
    return Result{layout.from_matrix(tape, out)};
  };
  if (weights_ == AttentionWeights::stick_breaking) {
    const StickBreakingAttention attention{.seq_len = layout.seq_len(),
                                           .heads = heads_,
                                           .kv_heads = kv_heads_,
                                           .head_dim = head_dim_,
                                           .cache = pass.cache};
    return project(attention, attention);
  }
  const RotaryAttention attention{.seq_len = layout.seq_len(),
                                  .heads = heads_,
                                  .kv_heads = kv_heads_,
                                  .head_dim = head_dim_,
                                  .rope_table = pass.rope,
                                  .cache = pass.cache};
  RotaryAttention again = attention;
  again.rotated = true;
  return project(attention, again);
}

}  // namespace lyceum
