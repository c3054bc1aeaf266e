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
  std::int64_t experts = 0;  // number of routed experts; 0: every FFN is dense
  /// Number of routed experts of each layer after model.first_dense_layers; overrides `experts`. Empty: all equal.
  std::vector<std::int64_t> experts_of_layers;
  /// Numbers of routed experts without weights, which follow those with weights: first those that output 0, then those
  /// that output their input.
  std::int64_t zero_experts = 0, copy_experts = 0;
  std::int64_t latent_hidden = 0;  // width of the routed experts' input and output; 0: model.hidden
  std::int64_t shared_experts = 0;
  /// True: the output of the shared experts is multiplied by sigmoid(w · x), with the token x and a learned vector w
  /// [Qwen2-MoE].
  bool shared_gate = false;
  std::int64_t top_k = 1;
  /// Number of chosen experts in the first step of a run; it grows linearly to top_k in the last one. 0: always top_k.
  std::int64_t top_k_start = 0;
  std::int64_t expert_hidden = 0;          // width of each expert, also of shared ones
  std::vector<std::int64_t> expert_sizes;  // width of each routed expert; overrides expert_hidden
  RouterKind router = RouterKind::softmax;
  bool router_bias = false;      // a bias that is added to the logits
  std::optional<Gates> gates;    // unset: chosen by gates_of()
  double routed_scale = 1;       // factor of the gates of routed experts [DeepSeek-V2]
  std::int64_t group_limit = 0;  // number of the balance.device_groups groups from which one token may choose; 0: all
  GroupScore group_score = GroupScore::top2;  // the score by which a token chooses these groups
  double capacity_factor = 0;  // choices of a sequence that an expert accepts, relative to an even distribution; 0: all
  std::int64_t router_hidden = 256;  // width between the two matrices of an mlp router
  bool even_routing = false;  // distribute choices evenly over all experts regardless of scores, to measure speed
};

/// Returns the number of routed experts that a token chooses from: those with weights and those without.
inline std::int64_t choices_of(const MoeConfig& moe) { return moe.experts + moe.zero_experts + moe.copy_experts; }
/// Returns the names of the keys that add up to choices_of(), for messages.
inline const char* choices_keys(const MoeConfig& moe) {
  return choices_of(moe) > moe.experts ? "moe.experts + moe.zero_experts + moe.copy_experts" : "moe.experts";
}
/// Returns the width of the routed experts' input and output.
std::int64_t bank_hidden(const Config& config);

/// The number of routed experts of a layer, and descriptions of it for messages.
struct ExpertNumber {
  std::int64_t experts, choices;           // with weights; all that a token chooses from
  std::string experts_text, choices_text;  // "moe.experts = 8", "the 8 experts of layer 3"
};
/// Returns the numbers of experts that layers with a router have, each number once. A dense model has one entry, with
/// moe.experts = 0.
std::vector<ExpertNumber> expert_numbers(const Config& config);

void declare_keys(ConfigKeys& keys, MoeConfig& moe);
void check_moe(Findings& findings, const Config& config);
void simplify_moe(Config& config);

}  // namespace lyceum
