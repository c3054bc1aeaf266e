#include "model/attend.h"

#include <utility>

#include "autograd/attention.h"

namespace lyceum {

namespace {

RotaryAttention rotary(const Pass& pass, const AttentionHeads& heads) {
  return {.seq_len = pass.layout.seq_len(),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .rope_table = pass.rope,
          .cache = pass.cache};
}

/// `again`: makes the same of inputs that are rotated already.
template <class Op, class... Inputs>
Attended attended(Tape& tape, Op op, Op again, const Inputs&... inputs) {
  const Variable y = tape.apply(std::move(op), inputs...);
  return {y, [=](Tape& on) { on.release(y, again, inputs...); }};
}

}  // namespace

AttentionHeads heads_of(const ModelConfig& config, const ProcessGroup& tensor) {
  const AttentionHeads own{config.heads / tensor.size(), config.kv_heads / tensor.size(), config.head_dim};
  require_usage(own.heads * tensor.size() == config.heads && own.kv_heads * tensor.size() == config.kv_heads,
                "model.heads = {} and model.kv_heads = {} do not divide among parallel.tensor = {} ranks", config.heads,
                config.kv_heads, tensor.size());
  return own;
}

Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv) {
  const RotaryAttention attention = rotary(pass, heads);
  RotaryAttention again = attention;
  again.rotated = true;
  return attended(tape, attention, again, qkv);
}

Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv) {
  const SplitRotaryAttention attention{rotary(pass, heads)};
  SplitRotaryAttention again = attention;
  again.attention.rotated = true;
  return attended(tape, attention, again, q, kv);
}

}  // namespace lyceum
