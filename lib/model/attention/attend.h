#pragma once

#include <functional>

#include "model/attention/heads.h"
#include "model/sublayer.h"

namespace lyceum {

/// What attention gives, and how it is freed when all that uses it has run: see Tape::release().
struct Attended {
  Variable y;
  std::function<void(Tape&)> release;
};
/// Causal attention as the configuration says, of all tokens of a pass [tokens, heads.results()], within sequences and
/// after what the pass's cache holds. Whatever makes queries goes through here. qkv: columns q | k | v; nothing else
/// may read them. `released`: whether they are released behind the result, and so come back as they are now.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv, bool released = false);
/// The same of queries apart from keys and values. kv: columns k | v.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv);

}  // namespace lyceum
