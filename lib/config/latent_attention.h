#pragma once

#include <algorithm>
#include <cstdint>

#include "config/feature.h"

namespace lyceum {

struct ModelConfig;

/// [latent_attention]: the widths of model.attention = mla, multi-head latent attention [DeepSeek-V2]. A head of
/// queries and keys has nope_dim + rope_dim columns, of which the last rope_dim are rotated.
struct LatentAttentionConfig {
  std::int64_t query_rank = 0;      // width of the latent of queries; 0: queries are not compressed
  std::int64_t key_value_rank = 0;  // width of the latent of keys and values
  std::int64_t nope_dim = 0;        // columns of a head of queries and keys without positions
  std::int64_t rope_dim = 0;        // columns of a head with rotary positions; those of keys are shared by all heads
  std::int64_t value_dim = 0;       // columns of a head of values
  double norm_eps = 1e-6;           // added to the mean square in the RMSNorm of latents

  /// Returns the columns of a head of queries and keys. Does not overflow, whatever the widths.
  std::int64_t head_dim() const {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    return std::clamp<std::int64_t>(nope_dim, 0, most) + std::clamp<std::int64_t>(rope_dim, 0, most);
  }
};

/// Returns the factor of the scores: 1/√(nope_dim + rope_dim), with yarn times rope_magnitude(rope_mscale_all_dim)², as
/// DeepSeek-V2 and V3 have it. `model` must have latent attention.
double latent_score_scale(const ModelConfig& model);

/// Adds the keys of [latent_attention].
void declare_latent_keys(ConfigKeys& keys, LatentAttentionConfig& latent);
/// Checks the keys of [latent_attention], and the keys of [model] that latent attention excludes.
void check_latent_attention(Findings& findings, const ModelConfig& model);
/// Sets model.kv_heads and model.head_dim, if they are 0, to the values that latent attention implies.
void derive_latent_attention(ModelConfig& model);

}  // namespace lyceum
