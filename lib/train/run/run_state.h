#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "io/data/loader/data_progress.h"
#include "io/data/tokens/data_identity.h"
#include "io/routing/log.h"
#include "model/routing/dead_experts.h"
#include "model/routing/expert_placements.h"
#include "model/routing/routing_statistics.h"
#include "model/routing/routing_sums.h"
#include "train/run/soundness.h"
#include "train/step/recent_steps.h"

namespace lyceum {

/// The state of a training run that a checkpoint keeps in addition to tensors. It is equal on all ranks, except for
/// own_routing and unwritten_routing. A vector of routing data has one element per mixture of the model, or is empty.
struct RunState {
  std::string run_uuid;
  std::int64_t step = 0;            // steps done
  std::int64_t updates = 0;         // updates by the optimizer: steps that were not skipped
  std::int64_t samples = 0;         // position of the next sample in the order of the training data
  DataProgress data_begin;          // where the present loader begins: in the first stage, or at a change of the data
  std::int64_t schedule_steps = 0;  // length of the learning rate's present schedule; 0: unknown (old checkpoint)
  int stage = 0;                    // training stage of the last step; 0: the run has only one. Not saved
  std::int64_t skipped = 0;         // steps without an update
  std::int64_t outliers = 0;        // those of them that optim.skip_above skipped
  /// Steps since the last update, without those whose batch had no target: skipped because a number was not finite, and
  /// skipped by optim.skip_above.
  std::int64_t skipped_in_a_row = 0, outliers_in_a_row = 0;
  std::int64_t rollbacks = 0;                   // number of times that the run returned to a checkpoint
  std::vector<RoutingSums> routing;             // sums over all ranks and the steps since the last record
  std::vector<StepBalanceSums> routing_steps;   // sums over the same steps of each step's balance
  std::int64_t routing_tokens = 0;              // tokens of these steps
  std::deque<RoutingRecord> unwritten_routing;  // records that could not be written yet, oldest first; on rank 0
  /// Sums over this rank's tokens in steps since the last record that are not in `routing` yet, one element per mixture
  /// of this rank. Not saved: call sum_routing() before text().
  std::vector<RoutingSums> own_routing;
  /// The use of replicas in the same steps, with parallel.replicas: over all ranks in those of `routing`, and on this
  /// rank in the later ones, which are not saved.
  std::vector<ReplicaSums> replicas, own_replicas;
  Soundness soundness;
  RecentSteps recent;              // for optim.skip_above
  std::vector<ExpertLoad> load;    // decaying sums over steps, for the placement of experts
  std::vector<IdleExperts> idle;   // steps since each expert last had a token; skipped steps do not count
  std::vector<DataIdentity> data;  // identities of the token files of the present stage
  /// Present placement of the experts. Saved in checkpoints; a resumed run begins with it if parallel.replace_every is
  /// set, see LivePlacement::fits().
  std::vector<MixturePlacement> placement;

  /// Returns the tokens of all samples so far, those of the present loader with `seq_len` tokens each.
  std::int64_t tokens(std::int64_t seq_len) const {
    return data_begin.tokens + (samples - data_begin.samples) * seq_len;
  }

  /// Adds the loads of one step to `load`. `loads`: StepResult::loads.
  void add_load(const std::vector<RoutingSums>& loads);
  /// Adds the routing of one step, over `tokens` tokens of all ranks, to own_routing, routing_steps and routing_tokens,
  /// and its replicas to own_replicas. `own`: StepResult::routing. `loads`: StepResult::loads. `own_sums`:
  /// StepResult::replica_sums.
  void add_routing(const std::vector<RoutingSums>& own, const std::vector<RoutingSums>& loads, std::int64_t tokens,
                   const std::vector<ReplicaSums>& own_sums = {});
  /// Collective over the world. Sums own_routing and own_replicas over all ranks, adds the sums to `routing` and
  /// `replicas`, and clears own_routing and own_replicas. Without records (routing.every = 0), calls clear_routing()
  /// instead. The bits of `routing` do not depend on when it is called, as long as sums of probabilities and entropies
  /// are below 2^33 (round_to_exact_sums()).
  void sum_routing(const Config& config, const Mesh& mesh);
  /// Returns why a checkpoint saved now is not sound, or an empty text: Soundness::problem(), or that the last
  /// Soundness::window steps or more were skipped by optim.skip_above, which may be due to the weights.
  std::string problem() const;
  /// Forgets the losses and norms of earlier steps. Call when those of later steps are no longer comparable.
  void forget_losses();
  /// Clears own_routing, routing, routing_steps, routing_tokens, and the replicas.
  void clear_routing();

  /// Returns the load of each mixture in `text`, the text() that a checkpoint contains; empty for older checkpoints and
  /// models without mixtures. This and the next four functions need no model. They throw a bad_input Error if `text`
  /// has another form.
  static std::vector<ExpertLoad> load_of(const std::string& text);
  /// Returns the placement of each mixture whose experts are divided among ranks; empty for checkpoints without any.
  static std::vector<MixturePlacement> placement_of(const std::string& text);
  /// Returns the identities of the token files; empty for checkpoints without them.
  static std::vector<DataIdentity> data_of(const std::string& text);
  /// Returns data_begin; the beginning of the run for older checkpoints.
  static DataProgress data_begin_of(const std::string& text);
  /// Returns schedule_steps; 0 for older checkpoints, whose schedule had run.steps steps.
  static std::int64_t schedule_of(const std::string& text);

  /// Returns the state as JSON, without run_uuid and step, which are in the header of a checkpoint, and without the
  /// last update of `soundness`.
  std::string text() const;
  /// Sets the members that text() contains, except for `data` and `placement`. `expected`: empty sums of each mixture
  /// of the model. Throws a bad_input Error if `text` has another form or its routing sums are those of other mixtures.
  void restore(const std::string& text, const std::vector<RoutingSums>& expected);
};

}  // namespace lyceum
