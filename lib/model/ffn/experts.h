#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/expert_bank.h"
#include "config/config.h"
#include "model/ffn/dense.h"
#include "model/ffn/expert_replicas.h"
#include "model/placed_experts.h"
#include "model/routing/expert_placements.h"
#include "model/routing/router.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/token_exchange.h"

namespace lyceum {

/// Returns the declaration of an FFN with the routed experts that `mixture` describes.
SublayerSpec ffn_experts_spec(const Config& config, const Mixture& mixture);

/// Returns the tensor of the gate of shared experts, [1, hidden].
SublayerTensor shared_gate_tensor(const ModelConfig& model);
/// Returns the number of parameters of a routed expert per unit of its width, without the bias of its output: for
/// example 3 · hidden for SwiGLU.
std::int64_t expert_column(const Config& config);

/// Shared experts plus routed experts [DeepSeekMoE eq. 9–11]. The steps of forward:
///   1. Each tensor rank routes its own range of the tokens.
///   2. Tokens are sent to the ranks of the expert group that hold their experts, in one or two hops. Shared experts
///      run in the meantime.
///   3. Each rank runs its experts (the ranks of an expert_tensor group share the width of the same experts),
///      multiplies their outputs by the gates and sums them per token.
///   4. The sums return to the tokens' ranks, where the shared experts' output is added.
/// With moe.latent_hidden = d the routed experts work on W_down · x, and their sum is multiplied by W_up:
/// latent/down/weight [d, hidden], latent/up/weight [hidden, d] [LatentMoE]. Experts without weights contribute 0, or
/// gate · x, on the token's own rank [MoE++]. With moe.shared_gate the output of the shared experts is multiplied by
/// σ(x · w), w = shared_expert_gate/weight [1, hidden] [Qwen2-MoE].
class MoeLayer : public Sublayer, private PlacedExperts {
 public:
  /// Adds its parameters to the units of `context`. `mixture`: the routed experts; `placements`: their placements.
  /// `prefix`: prefix of the tensor names, without a slash at the end. The mesh must outlive this.
  MoeLayer(const Config& config, const Mixture& mixture, const std::string& prefix, const SublayerContext& context,
           ExpertPlacements placements);

  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  const Mixture* mixture() const override { return &mixture_; }
  const Router* router() const override { return &router_; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }
  PlacedExperts* placed_experts() override { return unit_ ? this : nullptr; }

 private:
  MixtureId id() const override { return mixture_.id; }
  const Placement& placement() const override { return placements_.ranks; }
  const ParameterUnit& unit() const override { return *unit_; }
  std::vector<std::int64_t> slot_elements() const override;
  void set_placement(const Placement& placement) override;
  void forget_replicas() override {
    if (replicas_) replicas_->forget();
  }
  ReplicaTransfers replica_transfers() const override {
    return replicas_ ? replicas_->transfers() : ReplicaTransfers{};
  }
  /// Returns the route of tokens to the experts of the present placement.
  ExpertRoute present_route() const;
  /// Returns a copy of `index` [tokens, k] in which choices beyond an expert's capacity are −1, which means no expert.
  /// The tokens are those in this rank's range. Counts the dropped choices in the tally. Collective over the ranks that
  /// share a sequence.
  Tensor drop_over_capacity(const Tape& tape, const Pass& pass, const Tensor& index) const;
  /// Returns the shared experts' output for x, which is in the layout between matrices. `run`: the rows of x in this
  /// rank's range of tokens.
  Variable run_shared_experts(Tape& tape, const Pass& pass, const Variable& x, const Variable& run) const;
  /// Returns bounds for the exchanges of a pass with parallel.expert_exchange = bounded; nothing if tokens are counted.
  std::optional<RowBounds> row_bounds(const Pass& pass) const;
  /// Allocates the spare slots of parallel.replicas.
  void make_replicas(const Config& config, const SublayerContext& context);
  /// Sends tokens through the hops of the route from number `hop` on, runs the routed experts with weights, and returns
  /// one gated sum per token of `tokens`. `meanwhile` is called while tokens are in flight in hop number `hop`; if
  /// there is no such hop, after the experts.
  Variable run_routed(Tape& tape, const TokensAndChoices& tokens, const ExpertReplicas::Routing& routing,
                      std::size_t hop, const std::function<void()>& meanwhile) const;
  /// Returns the gated sums of this rank's experts for tokens that are on this rank. run_sharded_experts gathers the
  /// tokens of the expert_tensor group, whose ranks share the width of the experts, and sums over its ranks.
  /// run_local_experts uses only the part of the width that this rank holds.
  Variable run_sharded_experts(Tape& tape, const TokensAndChoices& tokens,
                               const ExpertReplicas::Routing& routing) const;
  Variable run_local_experts(Tape& tape, const TokensAndChoices& tokens, const ExpertReplicas::Routing& routing) const;

  Mixture mixture_;
  std::string prefix_;
  RoutingTally tally_{};
  const Mesh* mesh_;
  ParameterUnit* unit_;               // of the routed experts; null if there are none
  std::vector<SublayerTensor> bank_;  // tensors of the routed experts
  ExpertPlacements placements_;
  ExpertRoute route_;
  Router router_;
  Parameter *down_ = nullptr, *up_ = nullptr;  // projections to moe.latent_hidden and back; null without it
  bool overlaps_;                              // true if other computation overlaps the exchange of tokens
  bool bounded_;                               // true if exchanges of training passes are bounded
  ActivationFunction activation_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> experts_;
  std::optional<FeedForward> shared_;
  Parameter* shared_gate_ = nullptr;          // null without moe.shared_gate
  std::unique_ptr<ExpertReplicas> replicas_;  // null without parallel.replicas, and outside of training
};

}  // namespace lyceum
