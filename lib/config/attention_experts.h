#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/feature.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// [attention_experts]: the experts of model.attention = moa. Each has its own query and output projections; all share
/// keys and values [ModuleFormer]. Their router is of kind moe.router.
struct AttentionExpertsConfig {
  std::int64_t count = 0, top_k = 1;
  std::vector<std::int64_t> count_of_layers = {};  // one number per layer; overrides count. Empty: all are equal
  std::optional<Gates> gates;                      // unset: chosen by attention_gates_of()
};

/// Returns the largest number of attention experts that a layer has; 0 unless model.attention = moa.
std::int64_t most_attention_experts(const Config& config);

void declare_keys(ConfigKeys& keys, AttentionExpertsConfig& experts);
void check_attention_experts(Findings& findings, const Config& config);
void simplify_attention_experts(Config& config);

}  // namespace lyceum
