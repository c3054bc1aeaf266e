#pragma once

#include "autograd/key_value_cache.h"
#include "autograd/tape.h"
#include "kernels/attention.h"

namespace lyceum {

/// What attention keeps for backward besides its inputs.
struct AttentionKept {
  Tensor out;       // [tokens, heads · value_dim], where backward reads it
  Tensor row_sums;  // [tokens, heads]: log_sum_exp of AttentionForward, log_rest of StickBreakingForward
};

/// Causal attention with rotary positions on fused projections. qkv [sequences · seq_len, (heads + kv_heads) · head_dim
/// + kv_heads · value_dim], columns q | k | v; the result is [sequences · seq_len, heads · value_dim]. Rotates q and k
/// inside its input, which nothing else may read afterwards. Made of three steps that another attention may combine
/// otherwise: the kernel Rope, continue_from() a cache, and the kernels AttentionForward and AttentionBackward.
struct RotaryAttention {
  std::int64_t seq_len, heads, kv_heads, head_dim;
  std::int64_t value_dim = 0;      // 0: head_dim, the only one that the kernels have
  Tensor rope_table;               // accumulator type [≥ seq_len, head_dim], see RopeTable
  bool rotated = false;            // q and k are rotated already: to make a result again
  KeyValueCache* cache = nullptr;  // of the one sequence that qkv continues: then there is no backward
  Tensor first_keys = {};          // i32 [tokens], see FirstKeys; undefined: a sequence is one document

  struct Saved {
    Tensor qkv;
    AttentionKept kept;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& qkv) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// The same shapes by breaking sticks (StickBreakingForward), without positions: what is near is asked first. Its input
/// stays as it is, and keys in a cache are never looked at anew but by queries that come later.
struct StickBreakingAttention {
  std::int64_t seq_len, heads, kv_heads, head_dim;
  std::int64_t value_dim = 0;      // as in RotaryAttention
  KeyValueCache* cache = nullptr;  // as in RotaryAttention
  Tensor first_keys = {};          // likewise

  struct Saved {
    Tensor qkv;
    AttentionKept kept;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& qkv) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// Either of them where keys and values come apart from the queries: q [sequences · seq_len, heads ·
/// head_dim], kv [sequences · seq_len, kv_heads · (head_dim + value_dim)], columns k | v.
template <class Attention>
struct SplitProjections {
  Attention attention;

  struct Saved {
    Tensor q, kv;
    AttentionKept kept;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& q, const Tensor& kv) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
