#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/feature.h"
#include "config/router.h"

namespace lyceum {

/// [moe]: the experts of FFNs, and the router by which tokens choose them.
struct MoeConfig {
  std::int64_t experts = 0;                     // routed; 0: every FFN is dense
  std::vector<std::int64_t> experts_of_layers;  // of each layer that routes; overrides experts
  /// Routed experts without weights that follow, in this order: their output is 0, their output is their input.
  std::int64_t zero_experts = 0, copy_experts = 0;
  std::int64_t latent_hidden = 0;  // width of the routed experts' input and output; 0: model.hidden
  std::int64_t shared_experts = 0;
  bool shared_gate = false;  // multiply their output by the sigmoid of a product with the token [Qwen2-MoE]
  std::int64_t top_k = 1;
  std::int64_t top_k_start = 0;  // in the first step of a run, top_k in the last one; 0: always top_k
  std::int64_t expert_hidden = 0;
  std::vector<std::int64_t> expert_sizes;  // width of each expert; overrides expert_hidden
  RouterKind router = RouterKind::softmax;
  std::optional<Gates> gates;        // unset: as gates_of() derives
  std::int64_t group_limit = 0;      // most of balance.device_groups that a token's experts are in; 0: all
  double capacity_factor = 0;        // choices of a sequence that an expert accepts, in even shares; 0: all
  std::int64_t router_hidden = 256;  // width between the two matrices of an mlp router
  bool even_routing = false;         // spread choices evenly over all experts, to measure speed
};

/// Returns how many routed experts a token chooses from: those with weights, then those without.
inline std::int64_t choices_of(const MoeConfig& moe) { return moe.experts + moe.zero_experts + moe.copy_experts; }
/// Returns the keys that add up to choices_of(), for messages.
inline const char* choices_keys(const MoeConfig& moe) {
  return choices_of(moe) > moe.experts ? "moe.experts + moe.zero_experts + moe.copy_experts" : "moe.experts";
}
/// Returns the width of the routed experts' input and output.
std::int64_t bank_hidden(const Config& config);

/// The experts that a layer routes to, with the words for them in messages.
struct ExpertNumber {
  std::int64_t experts, choices;   // with weights; with and without
  std::string told, told_choices;  // "moe.experts = 8", "the 8 experts of layer 3"
};
/// Returns the numbers of experts that layers with a router have, each number once.
std::vector<ExpertNumber> expert_numbers(const Config& config);

void declare_keys(ConfigKeys& keys, MoeConfig& moe);
void check_moe(Findings& findings, const Config& config);
void simplify_moe(Config& config);

}  // namespace lyceum
