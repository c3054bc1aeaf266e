#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/expert_bank.h"
#include "autograd/tape.h"
#include "config/config.h"
#include "model/placed_experts.h"
#include "model/routing/mixture.h"
#include "model/routing/step_replicas.h"
#include "model/sublayer.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/expert_route.h"
#include "parallel/expert/expert_rows.h"
#include "parallel/expert/replica_choices.h"
#include "parallel/expert/replicated_bank.h"
#include "parallel/expert/spare_slots.h"

namespace lyceum {

/// Returns the maximum number of replicas that the experts of one rank may have in total, for `replicas` spare slots
/// (parallel.replicas) on each of `ranks` expert ranks. It bounds the rounds in which weights and gradients are sent.
int most_lent_replicas(int replicas, int ranks);

/// The replicas of hot experts of a layer, for parallel.replicas > 0. They are used in training steps only.
class ExpertReplicas {
 public:
  /// All references must outlive this, except `route`: the route of tokens to the experts without replicas. `placement`
  /// may change; call placement_changed() then.
  ExpertReplicas(const Config& config, const Mixture& mixture, const Mesh& mesh, const Stream& stream, DType type,
                 const SpareSlots::Experts& experts, const Placement& placement, const ExpertRoute& route);

  /// The routing of one pass with replicas.
  struct Routing {
    Tensor index;  // see divided()
    std::shared_ptr<const ReplicaPlan> plan;
    const ExpertRoute* route;
    std::span<const std::int64_t> rows = {};  // of this rank's experts and spare slots
  };
  /// Collective over the ranks that share experts. Chooses the replicas of a pass, or takes those that its first
  /// forward pass has chosen, and starts to send their weights. `index`: i32 [tokens, k], the choices of this rank's
  /// tokens. Waits for the device.
  Routing prepare(const Tape& tape, const Pass& pass, const Tensor& index);
  /// Runs this rank's experts and replicas, see GatedBank.
  Variable run(Tape& tape, const ActivationFunction& activation, const Routing& routing, const ExpertRows& rows,
               const Variable& x, const Variable& gates) const;
  /// Makes the next pass send the weights of all its replicas. Call when weights have changed, and before a step is
  /// repeated, so that the repetition sends the same weights.
  void forget() { spare_->forget(); }
  /// Returns the transfers since forget(), see PlacedExperts::replica_transfers().
  ReplicaTransfers transfers() const;
  /// Call when `placement` has changed. `route`: the new route without replicas.
  void placement_changed(const ExpertRoute& route);

 private:
  std::shared_ptr<const StepReplicas::Choice> choose(const Stream& stream, const NumberedChoices& choices) const;

  const Mixture* mixture_;
  const Mesh* mesh_;
  const Placement* placement_;
  ParameterUnit* originals_;
  int slots_;
  int host_ranks_;  // expert ranks per host, see ReplicaProblem
  bool turns_;      // passes of two micro-batches take turns
  bool in_flight_;  // a forward pass may follow another one before the backward pass of that one
  std::size_t own_;
  std::shared_ptr<SpareSlots> spare_;
  ExpertRoute route_;
};

}  // namespace lyceum
