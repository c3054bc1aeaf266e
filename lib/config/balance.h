#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"

namespace lyceum {

/// The tokens over which balance losses sum loads. sequence: each sequence separately. batch: the micro-batches that
/// all data ranks process at the same time. global: these and all earlier micro-batches of the step.
enum class BalanceScope { sequence, batch, global };
constexpr auto names_of(BalanceScope) { return std::array{"sequence", "batch", "global"}; }

/// [balance]: weights of the balance losses, and the update of selection biases. Weight 0: no such loss.
struct BalanceConfig {
  double expert = 0, device = 0;   // α₁ and α₂ of DeepSeekMoE
  std::int64_t device_groups = 0;  // groups of experts for the loss `device` and moe.group_limit; 0: parallel.expert
  BalanceScope scope = BalanceScope::sequence;
  double z_loss = 0;  // weight of the squared log-sum-exp of router logits
  /// Weights of the mutual information of tokens and experts, which training increases, and of the entropy of the mean
  /// probabilities, which training decreases [ModuleFormer].
  double mutual_information = 0, concentration = 0;
  double sub_dimension = 0;  // β of MoHD
  double bias_rate = 0;      // change per step of the bias of sigmoid and sqrt_softplus; 0: constant
};

void declare_keys(ConfigKeys& keys, BalanceConfig& balance);
/// Replaces device_groups = 0 by parallel.expert, unless moe.group_limit is set, which requires an explicit number.
void derive_balance(Config& config);
void simplify_balance(Config& config);
/// True if a difference of device_groups only reflects another mesh: in both configurations there is one group per
/// expert rank, and `now` has no moe.group_limit. Both must be resolved.
bool groups_follow_mesh(const Config& before, const Config& now);

}  // namespace lyceum
