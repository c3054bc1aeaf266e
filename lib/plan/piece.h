#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/routing/mixture.h"
#include "plan/traffic.h"
#include "plan/units.h"

namespace lyceum {

/// What a pass takes from one turn to the next, see Turns: bytes on top of those that were there when it began.
struct TurnNeed {
  double most, kept;  // at any time of the turn; at its end
};

/// Bytes of activations that a piece of the model takes for one micro-batch on a rank.
struct ActivationNeed {
  double forward = 0;           // the most that forward takes on top of what it keeps
  double kept = 0;              // from forward until backward, its input among it
  double kept_for_weights = 0;  // what weight gradients that are put off need, without the gradient of its input
  double backward = 0;          // the most that backward takes on top of what is kept
  std::vector<TurnNeed> forward_turns{}, backward_turns{};
};

/// Input, block or output of a model as a rank meets it with one micro-batch: not computed from formulas, but seen
/// while its code runs on a RehearsalStream, where every expert is chosen equally often by the tokens of every rank.
struct Piece {
  PassTraffic traffic;  // backward with what it sends again by model.recompute
  Traffic update;       // what routers send at the end of a step
  ActivationNeed activations;
  double buffers = 0;              // bytes that it keeps all the time
  std::vector<PlannedUnit> units;  // as Transformer makes them
};
Piece rehearse_piece(const Config& config, const Place& place, const StageParts& parts);

/// Pieces of configurations that differ in mesh, batch and recomputation alone. Those that are alike are rehearsed
/// once.
class Pieces {
 public:
  const Piece& input(const Config& config, const Place& place);
  /// What holds for a block holds for all that have as many routed experts, where optim.train_only distinguishes no
  /// layers apart.
  const Piece& block(const Config& config, const Place& place, std::int64_t layer);
  const Piece& output(const Config& config, const Place& place);

 private:
  enum class Kind : std::uint8_t { input, dense, sparse, output };
  /// All that a piece depends on.
  struct Key {
    Kind kind;
    std::int64_t layer;                                            // 0 where all blocks of a kind train the same
    std::int64_t experts;                                          // that a sparse block routes to
    int tensor, expert, expert_tensor, expert_hosts, ranks, rank;  // of a stage that has all groups, as small as can be
    bool sequence;
    std::int64_t micro;
    Recompute recompute;
    auto operator<=>(const Key&) const = default;
  };
  const Piece& find(const Config& config, const Place& place, Kind kind, const StageParts& parts);

  std::map<Key, Piece> pieces_;
};

}  // namespace lyceum
