#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"
#include "model/routing/expert_placements.h"
#include "model/staged_model.h"
#include "optim/expert_kinds.h"
#include "optim/expert_mover.h"
#include "optim/optimizer.h"
#include "parallel/data/zero.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// A change of the placement of experts between two steps.
struct PlacementChange {
  std::int64_t experts = 0, layers = 0;  // the number of experts that changed ranks, and of layers with such experts
  /// FLOPs of the busiest rank over the mean of all ranks, averaged over the layers, by the measured load.
  double imbalance_before = 0, imbalance_after = 0;
  std::int64_t bytes = 0;  // sent by all ranks together
};

/// Moves experts between ranks during training (parallel.replace_every), so that real routing costs as little time as
/// possible. Ranks wait for each other in every layer, so each layer has its own decision: its experts move if that
/// lowers the FLOPs of its busiest rank, by the measured load, by more than parallel.replace_gain. All ranks make the
/// same decisions from the same loads. Results do not depend on the placement, up to rounding.
class LivePlacement {
 public:
  /// Collective. `zero` and `optimizer` must hold the units of `model`. All references must outlive this.
  LivePlacement(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero, Optimizer& optimizer);

  /// True if experts can move from the placement `recorded` to `configured`: in each slot of each mixture, both have
  /// experts of the same kind (ExpertKinds). Both must be placements of all mixtures of the model; otherwise false.
  bool fits(std::span<const MixturePlacement> recorded, std::span<const MixturePlacement> configured) const;
  /// Local. Makes a placement the present one without moving anything. Call before weights are initialised or loaded.
  void begin_at(std::span<const MixturePlacement> placement);

  /// Collective over the world. Returns a better placement of all mixtures, or nothing if the experts of no layer
  /// should move. `load`: the measured load of each mixture. Throws an Error if ranks have different placements or
  /// loads, which a memory fault can cause.
  std::optional<std::vector<MixturePlacement>> better(std::span<const MixturePlacement> present,
                                                      std::span<const ExpertLoad> load) const;
  /// Collective over the world. Moves experts from the placement `present` to `wanted`, and makes that the present one.
  /// Call between steps. Throws an Error if the memory of weights or states was damaged since the last update.
  PlacementChange move(std::span<const MixturePlacement> present, std::span<const MixturePlacement> wanted,
                       std::span<const ExpertLoad> load);
  /// Makes the calls of a move in which two experts of each layer change places. For a rehearsal.
  void rehearse();

  /// Returns the bytes that this rank has sent so far.
  std::int64_t bytes_sent() const { return mover_.traffic().all_to_all; }

 private:
  std::optional<std::vector<MixturePlacement>> decide(std::span<const MixturePlacement> present,
                                                      std::span<const ExpertLoad> load) const;
  void require_agreement(std::span<const MixturePlacement> present, std::span<const MixturePlacement> wanted) const;
  void move_units(std::span<const MixturePlacement> wanted);
  double imbalance(std::span<const MixturePlacement> placement, std::span<const ExpertLoad> load) const;

  const Config& config_;
  const RunSetup& setup_;
  StagedModel& model_;
  Zero& zero_;
  Optimizer& optimizer_;
  ExpertMover mover_;
  std::vector<ExpertKinds> placed_;  // in forward order, of all pipeline stages
};

}  // namespace lyceum
