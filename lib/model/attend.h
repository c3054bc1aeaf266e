#pragma once

#include <functional>

#include "config/config.h"
#include "model/sublayer.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Heads of queries, and of the keys and values that they share; how a query weighs these.
struct AttentionHeads {
  std::int64_t heads, kv_heads, head_dim;
  AttentionWeights weights;

  std::int64_t queries() const { return heads * head_dim; }
  std::int64_t keys() const { return kv_heads * head_dim; }
};
/// This rank's share. Throws a usage Error where the heads do not divide.
AttentionHeads heads_of(const ModelConfig& config, const ProcessGroup& tensor);

/// What attention gives, and how it is freed when all that uses it has run: see Tape::release().
struct Attended {
  Variable y;
  std::function<void(Tape&)> release;
};
/// Causal attention as the configuration says, of all tokens of a pass [tokens, heads.queries()], within sequences and
/// after what the pass's cache holds. Whatever makes queries goes through here. qkv: columns q | k | v; nothing else
/// may read them. `released`: whether they are released behind the result, and so come back as they are now.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& qkv, bool released = false);
/// The same of queries apart from keys and values. kv: columns k | v.
Attended attend(Tape& tape, const Pass& pass, const AttentionHeads& heads, const Variable& q, const Variable& kv);

}  // namespace lyceum
