#pragma once

#include "kernels/balance.h"
#include "kernels/checks.h"
#include "kernels/router.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together.

inline void require_fitting(const BalanceLosses& balance) {
  const std::int64_t sequences = balance.count.rows, experts = balance.count.cols;
  require_extents("BalanceLosses", "sums", balance.sums, sequences, experts + 2);
  if (balance.probability.cols > 0) {
    require_extents("BalanceLosses", "probability", balance.probability, sequences, experts);
    require_extents("BalanceLosses", "entropy_slope", balance.entropy_slope, sequences, experts);
  }
  require_extents("BalanceLosses", "expert_slope", balance.expert_slope, sequences, experts);
  require_extents("BalanceLosses", "device_slope", balance.device_slope, sequences, experts);
  require_length("BalanceLosses", "order", balance.order, experts);
  if (!balance.choices.empty()) require_length("BalanceLosses", "choices", balance.choices, 1);
  if (!balance.count_of.empty()) require_length("BalanceLosses", "count_of", balance.count_of, 1);
  require_length("BalanceLosses", "expert_loss", balance.expert_loss, 1);
  require_length("BalanceLosses", "device_loss", balance.device_loss, 1);
  require_length("BalanceLosses", "z_loss", balance.z_loss, 1);
  require_length("BalanceLosses", "information_loss", balance.information_loss, 1);
  require_length("BalanceLosses", "concentration_loss", balance.concentration_loss, 1);
  require(!balance.first.empty(), "BalanceLosses: first is empty");
}

inline void require_fitting(const BalanceLossesBackward& balance) {
  const std::int64_t sequences = balance.expert_slope.rows, experts = balance.expert_slope.cols;
  require_extents("BalanceLossesBackward", "device_slope", balance.device_slope, sequences, experts);
  if (balance.entropy_slope.cols > 0) {
    require_extents("BalanceLossesBackward", "entropy_slope", balance.entropy_slope, sequences, experts);
  }
  require_extents("BalanceLossesBackward", "d_load", balance.d_load, sequences, load_width(experts));
}

}  // namespace lyceum
