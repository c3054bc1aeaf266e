#pragma once

#include <functional>

#include "model/attention/heads.h"
#include "model/sublayer.h"

namespace lyceum {

/// The result of attention, y [tokens, heads.results()]. Call `release` after the last use of y in forward: it frees
/// the memory of y, and backward computes y again, see Tape::release().
struct Attended {
  Variable y;
  std::function<void(Tape&)> release;
};
/// Options of attention to fused projections.
struct AttendOptions {
  /// True if the caller also releases qkv, after it has called release() of the result. Backward then recomputes qkv,
  /// so the repeated attention starts from values without rotation.
  bool released = false;
  Parameter* sinks = nullptr;  // [heads], see ApplySinks; null for none, and for stick-breaking
  Tensor largest_logits = {};  // as in RotaryAttention; ignored by stick-breaking
};
/// Applies causal attention to all tokens of a pass. A token attends to itself and to the earlier tokens of its
/// sequence, or of its document if the batch has first_keys, including those in the pass's cache. `heads`: the heads of
/// this rank. qkv: [tokens, queries + keys + values], with columns q | k | v. No other operation may read qkv, since
/// rotary positions are applied to it in place.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv,
                const AttendOptions& options = {});
/// Applies the same attention to queries q [tokens, queries] and to kv [tokens, keys + values] with columns k | v.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv);

}  // namespace lyceum
