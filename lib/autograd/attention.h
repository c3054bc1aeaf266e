#pragma once

#include "autograd/tape.h"
#include "kernels/attention.h"

namespace lyceum {

/// Keys and values of the past of one sequence, to which passes that go on from there add theirs.
struct KeyValueCache {
  std::int64_t capacity;    // positions
  Tensor keys{}, values{};  // [capacity, kv_heads · head_dim], from the first pass on
  std::int64_t length = 0;  // positions that are there
};

/// Causal attention with rotary positions on fused projections. qkv [sequences · seq_len, (heads + 2·kv_heads) · dim],
/// columns q | k | v; the result is [sequences · seq_len, heads · dim]. Rotates q and k inside its input, which nothing
/// else may read afterwards.
struct RotaryAttention {
  std::int64_t seq_len, heads, kv_heads, head_dim;
  Tensor rope_table;               // accumulator type [≥ seq_len, head_dim], see RopeTable
  bool rotated = false;            // q and k are rotated already: to make a result again
  KeyValueCache* cache = nullptr;  // of the one sequence that qkv continues: then there is no backward

  struct Saved {
    Tensor qkv, out, log_sum_exp;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& qkv) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// The same shapes by breaking sticks (StickBreakingForward), without positions: what is near is asked first. Its input
/// stays as it is, and keys in a cache are never looked at anew but by queries that come later.
struct StickBreakingAttention {
  std::int64_t seq_len, heads, kv_heads, head_dim;
  KeyValueCache* cache = nullptr;  // as in RotaryAttention

  struct Saved {
    Tensor qkv, log_rest;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& qkv) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
