#pragma once

#include "kernels/balance.h"
#include "kernels/checks.h"

namespace lyceum {

/// What the host and a GPU ask of their operands alike.
template <class A>
void require_fitting(const BalanceLosses<A>& balance) {
  const std::int64_t sequences = balance.count.rows, experts = balance.count.cols;
  require_extents("BalanceLosses", "probability", balance.probability, sequences, experts);
  require_extents("BalanceLosses", "expert_slope", balance.expert_slope, sequences, experts);
  require_extents("BalanceLosses", "device_slope", balance.device_slope, sequences, experts);
  require_length("BalanceLosses", "order", balance.order, experts);
  require_length("BalanceLosses", "expert_loss", balance.expert_loss, 1);
  require_length("BalanceLosses", "device_loss", balance.device_loss, 1);
  require(!balance.first.empty(), "BalanceLosses: first is empty");
}

template <class A>
void require_fitting(const MixSlopes<A>& mix) {
  require_length("MixSlopes", "a", mix.a, std::ssize(mix.y));
  require_length("MixSlopes", "b", mix.b, std::ssize(mix.y));
}

template <class A>
void require_fitting(const SpreadMean<A>& spread) {
  require_length("SpreadMean", "sums", spread.sums, spread.y.cols + 1);
}

template <class A>
void require_fitting(const ScaleRows<A>& scale) {
  require_length("ScaleRows", "row", scale.row, scale.x.rows);
  require_length("ScaleRows", "factor", scale.factor, 1);
}

}  // namespace lyceum
