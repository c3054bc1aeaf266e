#pragma once

#include <functional>

#include "model/attention/heads.h"
#include "model/sublayer.h"

namespace lyceum {

/// The result of attention, [tokens, heads.results()], and the function that frees it. Call release() after the last
/// use of y; backward then computes it again, see Tape::release().
struct Attended {
  Variable y;
  std::function<void(Tape&)> release;
};
/// Applies causal attention to all tokens of a pass, within sequences and after the positions in the pass's cache.
/// `heads`: this rank's. qkv: [tokens, queries + keys + values], with columns q | k | v; no other operation may read
/// it, since it is rotated in place. `released`: true if the caller releases qkv after this result, so that a
/// recomputation starts from unrotated values.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv, bool released = false);
/// Applies the same attention to queries q [tokens, queries] and to kv [tokens, keys + values] with columns k | v.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv);

}  // namespace lyceum
