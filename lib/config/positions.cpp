#include "config/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"

namespace lyceum {

std::int64_t rotary_dim(const PositionsConfig& positions, std::int64_t head_dim) {
  const double fraction = positions.rotary_fraction;
  const bool whole = !(fraction > 0 && fraction < 1);
  return whole ? head_dim : static_cast<std::int64_t>(static_cast<double>(head_dim) * fraction);
}

std::int64_t rotary_dim(const ModelConfig& model) {
  return model.attention == AttentionKind::latent ? model.latent.rope_dim : rotary_dim(model.positions, model.head_dim);
}

std::int64_t rotary_columns(const ModelConfig& model) {
  if (model.attention_weights != AttentionWeights::softmax) return 0;
  return (rotary_dim(model) + 1) / 2 * 2;
}

double rope_magnitude(const PositionsConfig& positions, double scale) {
  return positions.factor <= 1 ? 1.0 : 0.1 * scale * std::log(positions.factor) + 1.0;
}

double rope_attention_factor(const PositionsConfig& positions) {
  if (positions.scaling != RopeScalingKind::yarn) return 1;
  if (positions.attention_factor > 0) return positions.attention_factor;
  const auto magnitude = [&](double scale) { return rope_magnitude(positions, scale); };
  const bool both = positions.mscale > 0 && positions.mscale_all_dim > 0;
  return both ? magnitude(positions.mscale) / magnitude(positions.mscale_all_dim) : magnitude(1);
}

namespace {

/// Returns the indices of pairs between which yarn goes from unchanged to divided frequencies.
std::pair<double, double> yarn_bounds(const PositionsConfig& positions, double base, std::int64_t dim) {
  const auto size = static_cast<double>(dim);
  // The index of the pair that rotates that many times in the original length, not rounded.
  const auto pair_of = [&](double rotations) {
    const double length = static_cast<double>(positions.original_length);
    return size * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = pair_of(positions.beta_fast), high = pair_of(positions.beta_slow);
  if (positions.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  return {low, high};
}

}  // namespace

RopeScaling rope_scaling(const ModelConfig& model, std::int64_t dim) {
  const PositionsConfig& positions = model.positions;
  RopeScaling scaling{.kind = positions.scaling,
                      .factor = positions.factor,
                      .original_length = static_cast<double>(positions.original_length),
                      .attention_factor = rope_attention_factor(positions)};
  if (positions.scaling == RopeScalingKind::llama3) {
    scaling.low = positions.low_freq_factor;
    scaling.high = positions.high_freq_factor;
  } else if (positions.scaling == RopeScalingKind::yarn) {
    std::tie(scaling.low, scaling.high) = yarn_bounds(positions, model.rope_base, dim);
  }
  return scaling;
}

void declare_position_keys(ConfigKeys& keys, PositionsConfig& positions) {
  const KeySection key(keys, KeyRole::identity);
  constexpr double most = 1e6;
  key("model.rope_scaling", &positions.scaling,
      "scaling of rotary frequencies for longer sequences: linear, all alike; llama3 or yarn, mainly low frequencies",
      {.other_names = {"rope_type", "rope_parameters"}});
  key("model.rope_factor", &positions.factor, {.low = 1, .high = most},
      "ratio of the new sequence length to the original one",
      {.other_names = {"rope_scaling_factor", "rotary_scaling_factor"}});
  key("model.rope_original_length", &positions.original_length, {.low = 0},
      "llama3, yarn: sequence length of the training before scaling; 0: not set",
      {.other_names = {"original_max_position_embeddings"}});
  key("model.rope_low_freq_factor", &positions.low_freq_factor, {.low = 0, .high = most, .low_open = true},
      "llama3: divide frequencies of fewer turns in rope_original_length by rope_factor",
      {.other_names = {"low_freq_factor"}});
  key("model.rope_high_freq_factor", &positions.high_freq_factor, {.low = 0, .high = most, .low_open = true},
      "llama3: keep frequencies of more turns in rope_original_length", {.other_names = {"high_freq_factor"}});
  key("model.rope_beta_fast", &positions.beta_fast, {.low = 0, .high = most, .low_open = true},
      "yarn: keep frequencies of more turns in rope_original_length", {.other_names = {"beta_fast"}});
  key("model.rope_beta_slow", &positions.beta_slow, {.low = 0, .high = most, .low_open = true},
      "yarn: divide frequencies of fewer turns in rope_original_length by rope_factor", {.other_names = {"beta_slow"}});
  key("model.rope_truncate", &positions.truncate, {}, "yarn: round the bounds between both outwards to whole pairs");
  key("model.rope_attention_factor", &positions.attention_factor, {.low = 0, .high = 1e3},
      "yarn: factor of rotated queries and of rotated keys; 0: from rope_factor",
      {.other_names = {"attention_factor", "attn_factor"}});
  key("model.rope_mscale", &positions.mscale, {.low = 0, .high = 1e3},
      "yarn: with rope_mscale_all_dim, the attention factor is m(rope_mscale) / m(rope_mscale_all_dim); 0: not set",
      {.other_names = {"mscale"}});
  key("model.rope_mscale_all_dim", &positions.mscale_all_dim, {.low = 0, .high = 1e3},
      "yarn: see rope_mscale; m(s) = 0.1 s ln(rope_factor) + 1; 0: not set", {.other_names = {"mscale_all_dim"}});
  key("model.rotary_fraction", &positions.rotary_fraction, {.low = 0, .high = 1, .low_open = true},
      "share of each head that is rotated: its first columns",
      {.other_names = {"partial_rotary_factor", "rotary_percent", "rotary_pct"}});
  key("model.rope_layout", &positions.layout,
      "pairs of columns that are rotated: half, i and i + half of them; interleaved, neighbours",
      {.other_names = {"rotary_interleaved", "rope_interleave"}});
}

namespace {

/// A key that has an effect with some scalings only.
struct ScalingKey {
  const char* name;
  std::string value;
  bool is_default;
  std::vector<RopeScalingKind> kinds;
};

std::vector<ScalingKey> scaling_keys(const PositionsConfig& positions) {
  using enum RopeScalingKind;
  const PositionsConfig initial;
  const auto key = [&](const char* name, auto PositionsConfig::*member, std::vector<RopeScalingKind> kinds) {
    return ScalingKey{name, fmt::format("{}", positions.*member), positions.*member == initial.*member,
                      std::move(kinds)};
  };
  return {key("model.rope_factor", &PositionsConfig::factor, {linear, llama3, yarn}),
          key("model.rope_original_length", &PositionsConfig::original_length, {llama3, yarn}),
          key("model.rope_low_freq_factor", &PositionsConfig::low_freq_factor, {llama3}),
          key("model.rope_high_freq_factor", &PositionsConfig::high_freq_factor, {llama3}),
          key("model.rope_beta_fast", &PositionsConfig::beta_fast, {yarn}),
          key("model.rope_beta_slow", &PositionsConfig::beta_slow, {yarn}),
          key("model.rope_truncate", &PositionsConfig::truncate, {yarn}),
          key("model.rope_attention_factor", &PositionsConfig::attention_factor, {yarn}),
          key("model.rope_mscale", &PositionsConfig::mscale, {yarn}),
          key("model.rope_mscale_all_dim", &PositionsConfig::mscale_all_dim, {yarn})};
}

/// Checks that stick-breaking attention, which has no positions, has no keys of rotary positions.
void check_no_positions(Findings& findings, const ModelConfig& model) {
  const auto unset = [&](const char* key, const auto& value, const auto& initial, const std::string& text) {
    findings.unless(
        value == initial,
        "{0} = {1} with model.attention_weights = stick_breaking, which has no rotary positions: remove {0}", key,
        text);
  };
  const ModelConfig initial;
  const PositionsConfig &now = model.positions, &before = initial.positions;
  unset("model.rope_base", model.rope_base, initial.rope_base, fmt::format("{}", model.rope_base));
  unset("model.rope_scaling", now.scaling, before.scaling, name_of(now.scaling));
  unset("model.rotary_fraction", now.rotary_fraction, before.rotary_fraction, fmt::format("{}", now.rotary_fraction));
  unset("model.rope_layout", now.layout, before.layout, name_of(now.layout));
}

/// Checks the keys of the scaling against each other.
void check_scaling(Findings& findings, const ModelConfig& model) {
  using enum RopeScalingKind;
  const PositionsConfig& positions = model.positions;
  for (const auto& [name, value, is_default, kinds] : scaling_keys(positions)) {
    std::string known;
    for (const RopeScalingKind kind : kinds) known += (known.empty() ? "" : " or ") + name_of(kind);
    findings.unless(is_default || std::ranges::find(kinds, positions.scaling) != kinds.end(),
                    "{0} = {1} with model.rope_scaling = {2}: set model.rope_scaling = {3}, or remove {0}", name, value,
                    name_of(positions.scaling), known);
  }
  const bool yarn_scaled = positions.scaling == yarn;
  findings.unless((!yarn_scaled && positions.scaling != llama3) || positions.original_length != 0,
                  "model.rope_scaling = {} without model.rope_original_length: set the sequence length that the model "
                  "was trained with before",
                  name_of(positions.scaling));
  findings.unless(positions.scaling != llama3 || positions.low_freq_factor < positions.high_freq_factor,
                  "model.rope_low_freq_factor = {} is not below model.rope_high_freq_factor = {}",
                  positions.low_freq_factor, positions.high_freq_factor);
  findings.unless(!yarn_scaled || positions.beta_slow <= positions.beta_fast,
                  "model.rope_beta_slow = {} is more than model.rope_beta_fast = {}", positions.beta_slow,
                  positions.beta_fast);
  findings.unless(!yarn_scaled || model.rope_base > 1,
                  "model.rope_base = {} with model.rope_scaling = yarn: set a base above 1", model.rope_base);
}

}  // namespace

void check_positions(Findings& findings, const ModelConfig& model, std::int64_t head_dim) {
  check_scaling(findings, model);
  if (model.attention_weights != AttentionWeights::softmax) return check_no_positions(findings, model);
  const std::int64_t dim = rotary_dim(model.positions, head_dim);
  findings.unless(dim < head_dim || divides(2, head_dim),
                  "heads have the odd width {} (model.head_dim): RoPE rotates pairs, set an even width", head_dim);
  findings.unless(dim > 0 || head_dim <= 0,
                  "model.rotary_fraction = {} rotates none of the {} columns of a head: set at least {:.3g}",
                  model.positions.rotary_fraction, head_dim,
                  1 / static_cast<double>(std::max<std::int64_t>(head_dim, 1)));
}

void simplify_positions(PositionsConfig& positions) {
  if (positions.factor == 1 && rope_attention_factor(positions) == 1) {
    positions = {.rotary_fraction = positions.rotary_fraction, .layout = positions.layout};
  }
}

}  // namespace lyceum
