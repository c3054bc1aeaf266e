// The part of Trainer that places experts on ranks, at the start and during training.
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "model/routing/expert_placements.h"
#include "train/run/trainer.h"

namespace lyceum {

/// Returns the placement of the experts at the start: that of the model or, if experts move during training, that of
/// the checkpoint, if it fits the slots of this mesh. Makes it the model's. Also returns whether it is that of the
/// checkpoint.
std::pair<std::vector<MixturePlacement>, bool> Trainer::first_placement() {
  std::vector<MixturePlacement> placement =
      place_all_experts(config_, setup_.mesh.expert.size(), starting_point_->expert_load());
  if (!live_placement_) return {std::move(placement), false};
  std::vector<MixturePlacement> recorded = starting_point_->expert_placement();
  if (!live_placement_->fits(recorded, placement)) return {std::move(placement), false};
  live_placement_->begin_at(recorded);
  return {std::move(recorded), true};
}

/// Sets how much busier than the mean the busiest expert rank was in a step. Does nothing on other ranks than 0, and if
/// the experts are not divided among ranks.
void Trainer::measure_ranks(StepResult& result) const {
  if (setup_.mesh.world.rank() != 0 || setup_.mesh.expert.size() == 1 || state_.placement.empty()) return;
  result.rank_imbalance = rank_imbalance(mixtures_, state_.placement, result.loads, result.replicas.moved);
  if (config_.parallel.replicas > 0) {
    result.rank_imbalance_without_replicas = rank_imbalance(mixtures_, state_.placement, result.loads);
  }
}

/// Collective. Moves experts to other ranks if the measured load predicts a gain.
void Trainer::replace_experts() {
  std::optional<std::vector<MixturePlacement>> better = live_placement_->better(state_.placement, state_.load);
  if (!better) return;
  const auto start = Clock::now();
  const PlacementChange change = live_placement_->move(state_.placement, *better, state_.load);
  state_.placement = std::move(*better);
  logs_.placement_changed(state_);
  report_.moved(change, state_, seconds_since(start));
}

}  // namespace lyceum
