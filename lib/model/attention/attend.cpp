#include "model/attention/attend.h"

#include "autograd/attention.h"

namespace lyceum {

namespace {

RotaryAttention rotary(const Pass& pass, const AttentionHeads& heads) {
  return {.seq_len = pass.layout.seq_len(),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .value_dim = heads.value_dim,
          .rope_table = pass.rope,
          .cache = pass.cache,
          .first_keys = pass.batch.first_keys};
}

StickBreakingAttention sticks(const Pass& pass, const AttentionHeads& heads) {
  return {.seq_len = pass.layout.seq_len(),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .value_dim = heads.value_dim,
          .cache = pass.cache,
          .first_keys = pass.batch.first_keys};
}

/// `again` computes the same result as `op` from inputs to which `op` has been applied (they may be rotated).
template <class Op, class... Inputs>
Attended attended(Tape& tape, const Op& op, const Op& again, const Inputs&... inputs) {
  const Variable y = tape.apply(op, inputs...);
  return {y, [=](Tape& on) { on.release(y, again, inputs...); }};
}

RotaryAttention rotated(RotaryAttention attention) {
  attention.rotated = true;
  return attention;
}

}  // namespace

Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv, bool released) {
  if (heads.weights == AttentionWeights::stick_breaking) {
    return attended(tape, sticks(pass, heads), sticks(pass, heads), qkv);
  }
  const RotaryAttention attention = rotary(pass, heads);
  return attended(tape, attention, released ? attention : rotated(attention), qkv);
}

Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv) {
  if (heads.weights == AttentionWeights::stick_breaking) {
    const SplitProjections<StickBreakingAttention> attention{sticks(pass, heads)};
    return attended(tape, attention, attention, q, kv);
  }
  const SplitProjections<RotaryAttention> attention{rotary(pass, heads)}, again{rotated(attention.attention)};
  return attended(tape, attention, again, q, kv);
}

}  // namespace lyceum
