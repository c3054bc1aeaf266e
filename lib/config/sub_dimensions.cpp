#include "config/sub_dimensions.h"

#include <tuple>
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
      "multiply the inputs of q, k, v, gate and up by the same factors, scaling included, not only the outputs");
  key("sub_dimensions.fusion_width", &parts.fusion_width, {.low = -1},
      "rows per block of the fusion matrices after each half; 0: no fusion; -1: as many as sub-dimensions");
}

namespace {

/// Checks that routers that choose nothing, as all active sub-dimensions are shared, are not to have losses. Those that
/// routers of experts have, too, are possible if there are experts.
void check_losses_without_choices(Findings& findings, const Config& config) {
  const SubDimensionsConfig& parts = config.sub_dimensions;
  const BalanceConfig& balance = config.balance;
  const bool experts = choices_of(config.moe) > 0 || most_attention_experts(config) > 0;
  for (const auto& [key, weight, of_experts] :
       {std::tuple{"balance.sub_dimension", balance.sub_dimension, false},
        std::tuple{"balance.expert", balance.expert, true}, std::tuple{"balance.device", balance.device, true},
        std::tuple{"balance.z_loss", balance.z_loss, true},
        std::tuple{"balance.mutual_information", balance.mutual_information, true},
        std::tuple{"balance.concentration", balance.concentration, true}}) {
    findings.unless(!(weight > 0) || (of_experts && experts),
                    "{} = {} with sub_dimensions.shared = {} of sub_dimensions.active = {}: no sub-dimension is left "
                    "to choose and to balance, set one of them lower",
                    key, weight, parts.shared, parts.active);
  }
}

}  // namespace

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
  if (parts.shared == parts.active) check_losses_without_choices(findings, config);
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
