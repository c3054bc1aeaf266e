#pragma once

#include <span>
#include <vector>

#include "config/config.h"
#include "model/routing/mixture.h"

namespace lyceum {

/// A mixture whose experts are divided among ranks, and the kinds of experts that may exchange their slots in memory.
struct ExpertKinds {
  Mixture mixture;
  /// [experts with weights]: experts with equal numbers may exchange slots, see rebalanced(). They have one width and
  /// the same update rules and, with moe.group_limit, are in the same group.
  std::vector<int> kinds;
};

/// Returns the mixtures of a resolved configuration whose experts are divided among ranks, in forward order.
std::vector<ExpertKinds> expert_kinds(const Config& config);

/// True if two experts of one kind are on different ranks of the configured placement on `ranks` ranks, so that experts
/// can move (parallel.replace_every).
bool can_move_experts(const Config& config, std::span<const ExpertKinds> experts, int ranks);

}  // namespace lyceum
