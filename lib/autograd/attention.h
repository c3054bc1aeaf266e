#pragma once

#include <array>
#include <vector>

#include "autograd/key_value_cache.h"
#include "autograd/tape.h"
#include "kernels/attention.h"
#include "kernels/rope_scaling.h"

namespace lyceum {

/// Results that attention keeps for backward, in addition to its inputs.
struct AttentionResults {
  Tensor out;  // [tokens, heads · value_dim]; undefined if backward does not read it
  /// [tokens, heads]: log_sum_exp of AttentionForward (accumulator type), with sinks that of ApplySinks; or log_rest of
  /// StickBreakingForward (f64).
  Tensor row_sums;
};

/// Causal attention with rotary positions on fused projections. qkv [sequences · seq_len, (heads + kv_heads) · head_dim
/// + kv_heads · value_dim] with columns q | k | v; the result is [sequences · seq_len, heads · value_dim].
///
/// Rotates q and k in place, so nothing else may read qkv afterwards. It consists of three steps that other kinds of
/// attention can combine differently: the kernel Rope, continue_from() if there is a cache, and the kernels
/// AttentionForward and AttentionBackward.
struct RotaryAttention {
  std::int64_t seq_len, heads, kv_heads, head_dim;
  std::int64_t value_dim = 0;  // columns of a head of values; 0: head_dim
  Tensor rope_table;  // accumulator type [≥ seq_len, rotated columns of a head, at most head_dim], see RopeTable
  /// True if q and k are rotated already. Set it in the operation that Tape::release() gets to compute the result
  /// again.
  bool rotated = false;
  KeyValueCache* cache = nullptr;  // past of the one sequence that qkv continues; no backward then. Null: no past
  Tensor first_keys = {};          // i32 [tokens], see FirstKeys; undefined: each sequence is one document
  RopeLayout rope_layout = RopeLayout::half;
  std::int64_t window = 0;     // see AttentionShape; a cache must have the same window
  Parameter* sinks = nullptr;  // [heads], see ApplySinks; null: no sinks
  /// f64 [heads]: forward raises each element to the largest scaled score of its head; undefined: it does not.
  Tensor largest_logits = {};

  struct Saved {
    Tensor qkv;
    AttentionResults results;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& qkv) const;
  /// Returns the gradient of qkv and adds that of the sinks.
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return sinks ? std::vector{sinks} : std::vector<Parameter*>(); }
  bool weights_in_backward() const { return true; }
  void weight_grad(const Stream&, Saved&, const Tensor&) const {}
};

/// Stick-breaking attention (StickBreakingForward), with the shapes of RotaryAttention. It has no positions: each query
/// considers keys from the newest to the oldest, so nearer keys take precedence. Its input is not changed.
struct StickBreakingAttention {
  std::int64_t seq_len, heads, kv_heads, head_dim;
  std::int64_t value_dim = 0;      // as in RotaryAttention
  KeyValueCache* cache = nullptr;  // as in RotaryAttention
  Tensor first_keys = {};          // as in RotaryAttention

  struct Saved {
    Tensor qkv;
    AttentionResults results;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& qkv) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// RotaryAttention or StickBreakingAttention with separate projections: q [sequences · seq_len, heads · head_dim] and
/// kv [sequences · seq_len, kv_heads · (head_dim + value_dim)] with columns k | v. With RotaryAttention, q and the
/// columns k are rotated in place, so nothing else may read them afterwards; it must have no sinks.
template <class Attention>
struct SplitProjections {
  Attention attention;

  struct Saved {
    Tensor q, kv;
    AttentionResults results;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& q, const Tensor& kv) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
