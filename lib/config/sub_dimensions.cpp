#include "config/sub_dimensions.h"

#include <utility>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "kernels/sub_dimension_factors.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, SubDimensionsConfig& parts) {
  const KeySection key(keys, KeyRole::identity);
  key("sub_dimensions.attention", &parts.attention, {.low = 0, .high = max_sub_dimensions},
      "sub-dimensions that attention divides hidden into; 0: not divided");
  key("sub_dimensions.ffn", &parts.ffn, {.low = 0, .high = max_sub_dimensions},
      "sub-dimensions that the FFN divides hidden into; 0: not divided");
  key("sub_dimensions.active", &parts.active, {.low = 1}, "sub-dimensions that a token uses");
  key("sub_dimensions.shared", &parts.shared, {.low = 0}, "sub-dimensions, of the active ones, that every token uses");
  key("sub_dimensions.scaling", &parts.scaling,
      "scaling of the chosen sub-dimensions' probabilities: restore, to the sum of all; printed, by the paper's "
      "formula");
  key("sub_dimensions.gates", &parts.gates, "factor of a sub-dimension: its probability, or 1 without scaling");
  key("sub_dimensions.input_gates", &parts.input_gates, {},
      "multiply the inputs of the projections of a half by these factors, too, as in equations 15 and 16 of MoHD");
  key("sub_dimensions.fusion_width", &parts.fusion_width, {.low = -1},
      "rows per block of the fusion matrices after each half; 0: no fusion; -1: as many as sub-dimensions");
}

void check_sub_dimensions(Findings& findings, const Config& config) {
  const SubDimensionsConfig& parts = config.sub_dimensions;
  const ModelConfig& model = config.model;
  if (parts.attention <= 0 && parts.ffn <= 0) {
    findings.unless(!(config.balance.sub_dimension > 0),
                    "balance.sub_dimension = {} with no sub-dimensions to balance: set sub_dimensions.attention or "
                    "sub_dimensions.ffn, or 0",
                    config.balance.sub_dimension);
    return;
  }
  const bool attention = parts.attention > 0;
  findings.unless(!attention || !model.qkv_bias,
                  "sub_dimensions.attention = {} with model.qkv_bias = true: set one or the other", parts.attention);
  findings.unless(!attention || model.qk_norm == QkNormKind::none,
                  "sub_dimensions.attention = {} with model.qk_norm = {}: set one or the other", parts.attention,
                  name_of(model.qk_norm));
  findings.unless(!attention || model.attention == AttentionKind::multi_head,
                  "sub_dimensions.attention = {} with model.attention = {}: set one or the other", parts.attention,
                  name_of(model.attention));
  findings.unless(
      parts.shared <= parts.active,
      "sub_dimensions.shared = {} is more than sub_dimensions.active = {}, of which they are a part: lower it",
      parts.shared, parts.active);
  findings.unless(parts.shared != parts.active || !(config.balance.sub_dimension > 0),
                  "balance.sub_dimension = {} with sub_dimensions.shared = {} of sub_dimensions.active = {}: no "
                  "sub-dimension is left to choose and to balance, set one of them lower",
                  config.balance.sub_dimension, parts.shared, parts.active);
  findings.unless(
      config.moe.experts <= 0 && config.moe.shared_experts <= 0,
      "moe.experts = {} and moe.shared_experts = {} with sub_dimensions: an FFN is divided or has experts, set "
      "one or the other",
      config.moe.experts, config.moe.shared_experts);
  for (const auto& [key, count] :
       {std::pair{"sub_dimensions.attention", parts.attention}, std::pair{"sub_dimensions.ffn", parts.ffn}}) {
    if (count <= 0) continue;
    findings.unless(divides(count, model.hidden), "{} = {} does not divide model.hidden = {}", key, count,
                    model.hidden);
    findings.unless(parts.active <= count, "sub_dimensions.active = {} is more than {} = {}", parts.active, key, count);
  }
  findings.unless(divides(parts.fusion_width, model.hidden),
                  "sub_dimensions.fusion_width = {} does not divide model.hidden = {}", parts.fusion_width,
                  model.hidden);
}

void simplify_sub_dimensions(SubDimensionsConfig& parts) {
  if (parts.attention == 0 && parts.ffn == 0) parts = {};
  if (parts.gates == SubDimensionGates::ones) {
    parts.scaling = SubDimensionsConfig{}.scaling;
    parts.input_gates = false;
  }
}

}  // namespace lyceum
