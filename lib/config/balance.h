#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"

namespace lyceum {

/// The tokens over which balance losses sum loads: each sequence separately, or one pass of all data ranks.
enum class BalanceScope { sequence, batch };
constexpr auto names_of(BalanceScope) { return std::array{"sequence", "batch"}; }

/// [balance]: factors of the balance losses, and the update of selection biases.
struct BalanceConfig {
  double expert = 0, device = 0;   // α₁ and α₂ of DeepSeekMoE
  std::int64_t device_groups = 0;  // 0: parallel.expert
  BalanceScope scope = BalanceScope::sequence;
  double z_loss = 0;
  double mutual_information = 0, concentration = 0;
  double sub_dimension = 0;  // β of MoHD
  double bias_rate = 0;      // change per step of the bias of sigmoid and sqrt_softplus; 0: constant
};

void declare_keys(ConfigKeys& keys, BalanceConfig& balance);
/// Replaces device_groups = 0 by parallel.expert, unless moe.group_limit is set, which requires an explicit number.
void derive_balance(Config& config);
void simplify_balance(Config& config);
/// True if the groups of the device-level loss equal the expert ranks in both configurations, so that they change with
/// the mesh.
bool groups_follow_mesh(const Config& before, const Config& now);

}  // namespace lyceum
