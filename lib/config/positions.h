#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "kernels/rope_scaling.h"

namespace lyceum {

struct ModelConfig;

constexpr auto names_of(RopeScalingKind) { return std::array{"none", "linear", "llama3", "yarn"}; }
constexpr auto names_of(RopeLayout) { return std::array{"half", "interleaved"}; }

/// The keys model.rope_… and model.rotary_fraction: which columns of a head are rotated, and how the frequencies are
/// scaled for sequences that are longer than those of the first training. Formulas and defaults are those of
/// transformers 5; RopeScaling has the formulas.
struct PositionsConfig {
  RopeScalingKind scaling = RopeScalingKind::none;
  double factor = 1;                 // with every scaling
  std::int64_t original_length = 0;  // llama3, yarn: positions that the model was trained with before; 0: not set
  /// yarn: pairs of columns that rotate more than beta_fast times in original_length positions keep their frequency.
  /// The frequency of pairs that rotate less than beta_slow times is divided by `factor`.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  // yarn: round these two bounds outwards to whole pairs
  /// llama3: the same bounds, in rotations, for high and low frequencies.
  double low_freq_factor = 1, high_freq_factor = 4;
  double attention_factor = 0;            // yarn: multiplies cos and sin; 0: from factor, mscale and mscale_all_dim
  double mscale = 0, mscale_all_dim = 0;  // yarn, see rope_attention_factor(); 0: not set
  double rotary_fraction = 1;             // share of a head that is rotated
  RopeLayout layout = RopeLayout::half;   // columns that form a pair
};

/// Returns the number d of dimensions of a head that are rotated: ⌊head_dim · rotary_fraction⌋.
std::int64_t rotary_dim(const PositionsConfig& positions, std::int64_t head_dim);
/// Returns the same number for the heads of a resolved model; latent_attention.rope_dim for latent attention.
std::int64_t rotary_dim(const ModelConfig& model);
/// Returns the number of columns of a head that are rotated: d rounded up to an even number. 0 for attention without
/// rotary positions. `model` must be resolved.
std::int64_t rotary_columns(const ModelConfig& model);

/// Returns m(scale) = 0.1 · scale · ln(factor) + 1, or 1 if the factor is at most 1 [Peng et al. 2023, eq. 22].
double rope_magnitude(const PositionsConfig& positions, double scale);
/// Returns the factor of cos and sin: attention_factor if set; otherwise m(1) or, if both are set, m(mscale) /
/// m(mscale_all_dim), with m as in rope_magnitude() [DeepSeek-V2]. 1 except with yarn.
double rope_attention_factor(const PositionsConfig& positions);
/// Returns the scaling of a table of rotary positions for heads of which `dim` dimensions are rotated.
RopeScaling rope_scaling(const ModelConfig& model, std::int64_t dim);

/// Adds the keys of rotary positions to those of [model].
void declare_position_keys(ConfigKeys& keys, PositionsConfig& positions);
/// `head_dim`: the width of a head, or 0 if it is not known.
void check_positions(Findings& findings, const ModelConfig& model, std::int64_t head_dim);
/// Replaces a scaling that changes nothing by none.
void simplify_positions(PositionsConfig& positions);

}  // namespace lyceum
