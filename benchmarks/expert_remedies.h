#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulated_experts.h"
#include "expert_loads.h"
#include "optim/expert_mover.h"
#include "optim/optimizer.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/zero.h"
#include "routed_tokens.h"

namespace lyceum {

/// A way to live with hot experts.
struct Remedy {
  std::string name;
  bool moves;                   // experts move between steps, as with parallel.replace_every
  int replicas;                 // parallel.replicas
  bool forced_balance = false;  // all experts are chosen equally often, and all ranks compute equally much
};

/// The sizes of a measured step.
struct StepShape {
  std::int64_t tokens, hidden, micro_batches;  // tokens of a rank per micro-batch
  std::int64_t widths;                         // mean width of the experts
  std::int64_t every;                          // steps between moves
  int host_ranks;                              // ranks on each host; 0: all
  double rate;                                 // FLOP/s of an emulated rank
};

/// Sums over all ranks but where stated otherwise.
struct StepResult {
  double seconds = 0;    // of the slowest rank
  double imbalance = 1;  // FLOPs of the busiest rank over the mean, averaged over layers and micro-batches
  double lateness = 0;   // see EmulatedProcessor; mean over the ranks, since the beginning
  double cpu_seconds = 0;
  EmulatedExperts::ReplicaTime replica_time;          // mean over the ranks
  std::int64_t row_bytes = 0;                         // of tokens, choices, gates and their gradients
  std::int64_t weight_bytes = 0, gradient_bytes = 0;  // of replicas, see EmulatedExperts::ReplicaTraffic
  std::int64_t planned_weight_bytes = 0, planned_gradient_bytes = 0;  // the same, as planned
  std::int64_t replicas = 0;
};

struct MoveResult {
  double seconds = 0;  // of the slowest rank
  std::int64_t experts = 0, bytes = 0, planned_bytes = 0;
};

/// The experts of all layers in training with one remedy, on this rank.
class RemediedExperts {
 public:
  /// Collective over the mesh, which must outlive this.
  RemediedExperts(const Mesh& mesh, const Stream& stream, const Remedy& remedy, const RoutingLoad& load,
                  const StepShape& shape);

  const Remedy& remedy() const { return remedy_; }
  /// Collective. Moves experts by the load of the steps before `step`, if that pays, with the production's search.
  MoveResult move(const RoutingLoad& load, std::int64_t step);
  /// Collective. Runs the forward and backward passes of a step. `routed`: of the load, or even with forced balance.
  /// `flops`: mean FLOPs of a rank, [micro-batches][layers], for forced balance. Before it, checks that the experts
  /// have the weights of the step before it, also if they have moved since then, and gives them new ones.
  StepResult run(const RoutedStep& routed, const std::vector<std::vector<double>>& flops, std::int64_t step);

 private:
  using Choices = std::vector<std::vector<Tensor>>;  // [micro-batches][layers]
  Choices tensors_of(const RoutedStep& routed) const;
  void pass(const std::vector<Tensor>& choices, const std::vector<double>& flops,
            std::vector<EmulatedExperts::Use>& uses);
  std::int64_t sent_rows() const;
  StepResult summed(StepResult own, const std::vector<EmulatedExperts::Use>& uses) const;
  void check(const RoutedStep& routed, const StepResult& result) const;

  const Mesh& mesh_;
  Stream stream_;
  Remedy remedy_;
  StepShape shape_;
  std::int64_t top_k_;
  EmulatedProcessor processor_;
  std::vector<std::unique_ptr<EmulatedExperts>> layers_;
  std::vector<int> kinds_;  // see rebalanced()
  EmulatedExperts::Sizes sizes_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Optimizer> optimizer_;
  ExpertMover mover_;
  Tensor x_, gates_, dy_;
  std::optional<std::int64_t> marked_;  // the step whose weights the experts have
};

/// Returns the widths of the experts of a load, with this mean.
std::vector<std::int64_t> widths_of(const RoutingLoad& load, std::int64_t mean);
/// Returns the tokens of a rank of an expert group, and of all.
TokenShape tokens_of(const StepShape& shape, const ProcessGroup& group);

}  // namespace lyceum
