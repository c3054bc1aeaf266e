#include "model/attention/attend.h"

#include "autograd/attention.h"

namespace lyceum {

namespace {

RotaryAttention rotary_op(const Pass& pass, const AttentionHeads& heads, const AttendOptions& options = {}) {
  return {.seq_len = pass.layout.seq_len(),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .value_dim = heads.value_dim,
          .rope_table = pass.rope,
          .cache = pass.cache,
          .first_keys = pass.batch.first_keys,
          .rope_layout = heads.rope_layout,
          .window = heads.window,
          .sinks = options.sinks,
          .largest_logits = options.largest_logits};
}

StickBreakingAttention stick_breaking_op(const Pass& pass, const AttentionHeads& heads) {
  return {.seq_len = pass.layout.seq_len(),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .value_dim = heads.value_dim,
          .cache = pass.cache,
          .first_keys = pass.batch.first_keys};
}

/// `repeated` computes the same result as `op` from inputs to which `op` has been applied (they may be rotated).
template <class Op, class... Inputs>
Attended attend_with(Tape& tape, const Op& op, const Op& repeated, const Inputs&... inputs) {
  const Variable y = tape.apply(op, inputs...);
  return {y, [=](Tape& on) { on.release(y, repeated, inputs...); }};
}

RotaryAttention rotated(RotaryAttention attention) {
  attention.rotated = true;
  return attention;
}

}  // namespace

Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv,
                const AttendOptions& options) {
  if (heads.weights == AttentionWeights::stick_breaking) {
    return attend_with(tape, stick_breaking_op(pass, heads), stick_breaking_op(pass, heads), qkv);
  }
  const RotaryAttention attention = rotary_op(pass, heads, options);
  RotaryAttention repeated = options.released ? attention : rotated(attention);
  repeated.largest_logits = {};  // measured already
  return attend_with(tape, attention, repeated, qkv);
}

Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv) {
  if (heads.weights == AttentionWeights::stick_breaking) {
    const SplitProjections<StickBreakingAttention> attention{stick_breaking_op(pass, heads)};
    return attend_with(tape, attention, attention, q, kv);
  }
  const SplitProjections<RotaryAttention> attention{rotary_op(pass, heads)}, repeated{rotated(attention.attention)};
  return attend_with(tape, attention, repeated, q, kv);
}

}  // namespace lyceum
