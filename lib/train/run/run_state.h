#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "io/data/tokens/data_identity.h"
#include "io/routing/log.h"
#include "model/routing/dead_experts.h"
#include "model/routing/expert_places.h"
#include "model/routing/routing_statistics.h"
#include "model/routing/routing_sums.h"
#include "train/run/soundness.h"

namespace lyceum {

/// What a checkpoint keeps of a run besides tensors; equal on all ranks but for unwritten_routing.
struct RunState {
  std::string run_uuid;
  std::int64_t step = 0;            // steps done
  std::int64_t updates = 0;         // of the optimizer: steps that were not skipped
  std::int64_t samples = 0;         // position in the order of samples
  std::int64_t schedule_steps = 0;  // that the learning rate's schedule is made for; 0: an older checkpoint's run.steps
  std::int64_t skipped = 0, skipped_in_a_row = 0;
  std::int64_t rollbacks = 0;                  // times that the run returned to a checkpoint
  std::vector<RoutingSums> routing;            // since the last record, over all ranks
  std::vector<StepBalanceSums> routing_steps;  // of the same steps one by one, for each mixture
  std::int64_t routing_tokens = 0;
  std::deque<RoutingRecord> unwritten_routing;  // that routing.h5 could not take yet, oldest first; rank 0 has them
  Soundness soundness;
  std::vector<ExpertLoad> load;    // of all steps, the last hundred or so weighing most; by which to place experts
  std::vector<IdleExperts> idle;   // by steps that were not skipped
  std::vector<DataIdentity> data;  // that the run reads, as it was when it began
  std::vector<MixturePlacement> placement;  // that the ranks have; saved in checkpoints, but not used on resume

  void add_routing(const std::vector<RoutingSums>& sums, std::int64_t tokens);
  void clear_routing();

  /// The load that a checkpoint's state holds, of each mixture that it measured: before there is a model to restore.
  static std::vector<ExpertLoad> load_of(const std::string& text);
  /// Likewise the placement; none of checkpoints without experts.
  static std::vector<MixturePlacement> placement_of(const std::string& text);
  /// Likewise the data; none of checkpoints without them.
  static std::vector<DataIdentity> data_of(const std::string& text);

  /// Returns the length of the schedule likewise; 0: that of run.steps in an older checkpoint.
  static std::int64_t schedule_of(const std::string& text);

  /// All but run_uuid and step, which a checkpoint's header has, as JSON.
  std::string text() const;
  /// The other way. Throws a bad_input Error for text of another form, and where routing sums are not those of a model
  /// with the mixtures of `expected`.
  void restore(const std::string& text, const std::vector<RoutingSums>& expected);
};

}  // namespace lyceum
