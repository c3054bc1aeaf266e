#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "core/clock.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/replica_choices.h"
#include "parallel/expert/spare_slots.h"
#include "parallel/expert/token_exchange.h"

namespace lyceum {

/// Emulates the processor of a rank: computation only takes time, during which the rank sleeps. So several ranks can
/// share a core.
class EmulatedProcessor {
 public:
  /// `rate`: FLOP/s.
  explicit EmulatedProcessor(double rate) : rate_(rate) {}
  void compute(double flops);
  /// Returns how much longer all calls together took than they should have, as a fraction.
  double lateness() const { return wanted_ > 0 ? taken_ / wanted_ - 1 : 0; }

 private:
  double rate_, wanted_ = 0, taken_ = 0;  // seconds
};

/// The routed experts of a layer, distributed over the ranks of mesh.expert, with the exchanges of tokens, replicas and
/// gradients of MoeLayer in training. Only the matrix products of the experts are emulated: an expert returns its
/// input. The first and the last element of both tensors of an expert are used to check that the right weights and
/// gradients were sent: a weight is a mark of the step, the expert and the element, a gradient counts rows.
class EmulatedExperts {
 public:
  struct Sizes {
    std::int64_t hidden, top_k;
    std::vector<std::int64_t> widths;  // [experts]
    int replicas;                      // spare slots per rank
    int host_ranks;                    // see ReplicaProblem::ranks_per_host
    /// FLOPs of a token in the forward pass of an expert with SwiGLU.
    double flops(std::size_t expert) const { return 6.0 * static_cast<double>(hidden * widths[expert]); }
  };
  /// Begins with a contiguous placement. The mesh must outlive this. unit() must get memory, and mark_weights() be
  /// called, before the first pass. Throws a usage Error for more experts than there are marks.
  EmulatedExperts(const Mesh& mesh, const Stream& stream, DType type, const Sizes& sizes, int layer);
  EmulatedExperts(const EmulatedExperts&) = delete;
  EmulatedExperts& operator=(const EmulatedExperts&) = delete;

  ParameterUnit& unit() { return unit_; }
  const Placement& placement() const { return placement_; }
  /// [experts]: elements of each expert in the memory of its owner.
  std::span<const std::int64_t> elements() const { return elements_; }
  /// Sets the marks of this rank's experts to those of a step.
  void mark_weights(std::int64_t step);
  /// Throws an Error unless this rank's experts have the marks of the last call of mark_weights(). Call it after
  /// experts have moved, too.
  void check_weights() const;
  /// Call after the experts have moved. Forgets all replicas.
  void set_placement(const Placement& placement);
  /// Call before a step.
  void forget_replicas();

  /// The work and the replicas of a pass.
  struct Use {
    double flops = 0;                                   // of this rank, forward
    std::int64_t weight_bytes = 0, gradient_bytes = 0;  // of all ranks, as the plan of replicas predicts
    std::int64_t replicas = 0;                          // of all ranks
  };
  /// Seconds that this rank has spent with replicas so far, including waits for other ranks.
  struct ReplicaTime {
    double choosing = 0;   // exchange of the numbers of rows, plan, division of rows
    double weights = 0;    // sending, and waiting where they are needed
    double gradients = 0;  // zeroed memory, and their return to the owners
  };
  const ReplicaTime& replica_time() const { return replicas_->time; }

  /// Bytes that this rank has sent so far to replicas and back: what the expert group counted as sent while replicas
  /// were exchanged.
  struct ReplicaTraffic {
    std::int64_t weights = 0, gradients = 0;
  };
  struct ReplicaUse {
    ReplicaTime time;
    ReplicaTraffic traffic;
  };
  /// Collective. Returns the sum of the outputs of each token's experts. `flops`: FLOPs of this rank in the forward
  /// pass, instead of those of its rows.
  Variable forward(Tape& tape, const Variable& x, const Variable& gates, const Tensor& index,
                   EmulatedProcessor& processor, std::optional<double> flops, Use& use);
  /// Throws an Error unless the gradients of this rank's experts count `tokens` [experts] tokens since they were
  /// zeroed.
  void check_gradients(std::span<const std::int64_t> tokens) const;

  const ReplicaTraffic& replica_traffic() const { return replicas_->traffic; }

 private:
  struct Routing {
    Tensor index;
    std::shared_ptr<const ReplicaPlan> plan;  // null without replicas
  };
  ExpertBank::Expert make_expert(std::int64_t width, ParameterUnit& unit) const;
  ExpertRoute present_route() const;
  Routing choose_replicas(const Stream& stream, const Tensor& index, Use& use);
  Variable answers(Tape& tape, const Routing& routing, const TokensAndChoices& tokens, std::size_t hop,
                   EmulatedProcessor& processor, std::optional<double> flops, Use& use);

  const Mesh* mesh_;
  Sizes sizes_;
  ParameterUnit unit_;
  Placement placement_;
  std::vector<ExpertBank::Expert> own_;
  std::vector<std::int64_t> elements_;
  DType type_;
  std::shared_ptr<SpareSlots> spare_;  // null without replicas
  ExpertRoute route_;
  std::int64_t step_ = 0;                                                  // of the marks
  std::shared_ptr<ReplicaUse> replicas_ = std::make_shared<ReplicaUse>();  // operations on tapes add to it
};

}  // namespace lyceum
