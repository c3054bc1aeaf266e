#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "autograd/attention.h"
#include "autograd/key_value_cache.h"
#include "autograd/tape.h"
#include "kernels/rope_scaling.h"

// Multi-head latent attention [DeepSeek-V2]. A token's keys and values are computed from two small vectors: a latent of
// `rank` elements, from which a matrix W computes the key without positions and the value of every head, and one key
// with rotary positions that all heads share.
namespace lyceum {

/// Numbers and widths of heads. The columns of a head are nope | rope in q, nope | value in kv = latent · Wᵀ, and value
/// in the result.
struct LatentHeads {
  std::int64_t heads;
  std::int64_t nope_dim, rope_dim;  // columns of queries and keys without and with rotary positions
  std::int64_t value_dim;

  std::int64_t head_dim() const { return nope_dim + rope_dim; }
  std::int64_t up_dim() const { return nope_dim + value_dim; }
};

/// Splits the projection of a token into its latent, which is normalised, and its shared key: x [tokens, rank +
/// rope_dim] → {RmsNorm(x[:, :rank]), x[:, rank:]}.
struct SplitLatent {
  Parameter* norm;  // [rank]
  double eps;

  struct Saved {
    Tensor x, inverse_rms;
  };
  static constexpr std::size_t weight_grad_reads = 0;  // dy of the latent
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_latent, const Tensor& d_key) const;
  std::vector<Parameter*> parameters() const { return {norm}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& d_latent, const Tensor& d_key) const;
};

/// Causal attention to keys and values that are computed from latents. q [tokens, heads · head_dim()], kv [tokens,
/// heads · up_dim()], shared key [tokens, rope_dim], not rotated → [tokens, heads · value_dim]. The keys and values of
/// all heads exist only while a kernel uses them.
///
/// Rotates the last rope_dim columns of each head of q in place, so nothing else may read q afterwards.
struct LatentAttention {
  LatentHeads heads;
  std::int64_t seq_len;
  double scale;       // of scores
  Tensor rope_table;  // accumulator type [≥ seq_len, rope_dim], see RopeTable
  RopeLayout rope_layout = RopeLayout::half;
  Tensor first_keys = {};   // i32 [tokens], see FirstKeys; undefined: each sequence is one document
  std::int64_t window = 0;  // see AttentionShape
  /// True if q is rotated already. Set it in the operation that Tape::release() gets to compute the result again,
  /// unless q is released too.
  bool rotated = false;
  Tensor largest_logits = {};  // as in RotaryAttention

  struct Saved {
    Tensor q, kv, key;
    AttentionResults results;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& q, const Tensor& kv, const Tensor& key) const;
  std::array<Tensor, 3> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// LatentAttention of new tokens of one sequence to all positions in a cache, whose rows are latent | rotated shared
/// key. q as above, latent [tokens, rank], key [tokens, rope_dim] → [tokens, heads · value_dim]. Appends the new rows
/// to the cache. Has no backward pass.
///
/// If there are few new tokens, W is absorbed into queries and results, so that no key or value is computed: with the
/// rows U and V of W for keys and values of a head, q·(U·c) = (qᵀ·U)·c and Σ p (V·c) = V·Σ p c, so latents c act as the
/// keys and values of all heads. Otherwise keys and values of all positions are computed. absorbs() selects the way
/// that takes fewer operations.
struct CachedLatentAttention {
  LatentAttention attention;
  Parameter* up;  // W [heads · up_dim(), rank]
  KeyValueCache* cache;

  struct Saved {};
  /// True if absorbing W takes fewer operations for `tokens` new tokens that attend to `positions`, their own included.
  bool absorbs(std::int64_t tokens, std::int64_t positions) const;
  Tensor forward(const Stream& stream, Saved&, const Tensor& q, const Tensor& latent, const Tensor& key) const;
  std::array<Tensor, 3> backward(const Stream&, Saved&, const Tensor&) const;
  std::vector<Parameter*> parameters() const { return {up}; }
  void weight_grad(const Stream&, Saved&, const Tensor&) const {}
};

}  // namespace lyceum
