#include "autograd/linear.h"
#include "model/layers.h"

namespace lyceum {

AttentionMatrices add_attention(ParameterUnit& unit, const std::string& prefix, const ModelConfig& config,
                                const AttentionHeads& heads, const ProcessGroup& tensor) {
  const auto rows = [&](const char* name, std::int64_t own) {
    return RowsOf{prefix + name, own * tensor.size(), {own * tensor.rank(), own}};
  };
  const std::int64_t queries = heads.queries(), keys = heads.keys();
  return {.qkv = &unit.add(stacked_parameter(
              prefix + "/qkv",
              {rows("/q_proj/weight", queries), rows("/k_proj/weight", keys), rows("/v_proj/weight", keys)},
              config.hidden, config.init_std)),
          .out = &unit.add(sharded_parameter(prefix + "/o_proj/weight", {config.hidden, queries * tensor.size()}, 1,
                                             {queries * tensor.rank(), queries}, config.init_std))};
}

AttentionLayer::AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor,
                               ParameterUnit& unit)
    : heads_(heads_of(config, tensor)), matrices_(add_attention(unit, prefix, config, heads_, tensor)) {}

Sublayer::Result AttentionLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable all = layout.to_matrix(tape, x), qkv = tape.apply(Linear{matrices_.qkv}, all);
  layout.release_matrix(tape, all, x);
  const Attended attended = attend(tape, pass, heads_, qkv);
  const Variable out = tape.apply(Linear{matrices_.out}, attended.y);
  attended.release(tape);
  return {layout.from_matrix(tape, out)};
}

}  // namespace lyceum
