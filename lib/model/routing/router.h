#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/routing.h"
#include "autograd/tape.h"
#include "config/config.h"
#include "kernels/weight_update.h"
#include "model/sublayer.h"
#include "model/sublayer_tensor.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Returns the tensors of a mixture's router, in checkpoint order.
std::vector<SublayerTensor> router_tensors(const Config& config, const Mixture& mixture);

/// Throws a usage Error unless every router of the configuration can skip the `skip` best experts of a token and still
/// choose moe.top_k others.
void require_skippable(const Config& config, std::int64_t skip);

/// Chooses experts (or other choices of a mixture) for each token. A router computes logits as its kind requires; one
/// pass over them then makes choices and gates. Later computation does not depend on the kind of router. By kind:
///   softmax: logits x · Wᵀ with W = gate/weight [experts, hidden]. With moe.router_bias, this kind and the next two
///       add gate/bias [experts], a trained vector, initially zero [gpt-oss]
///   sigmoid: the same logits, with sigmoid scores. Experts are chosen by score + b with b =
///       gate/e_score_correction_bias [experts], which has no gradient; update() adjusts it from routing counts
///       [DeepSeek-V3]
///   sqrt_softplus: as sigmoid, with scores √softplus [DeepSeek-V4]
///   random: as softmax, but W keeps its random initial values [SMoE-Dropout]
///   mlp: A · ReLU(B · x) with B = gate/in/weight [router_hidden, hidden], A = gate/weight [experts, router_hidden]
///   noisy: x · Wᵀ + ε ⊙ softplus(γ ⊙ RMSNorm(x · W_nᵀ)) with W_n = gate/noise/weight [experts, hidden], γ =
///       gate/noise_scale [experts], ε ~ N(0, 1); x · Wᵀ outside of training [Shazeer et al. 2017, MoDSE]
///   hash: no logits; the expert is a function of token id and layer, see HashTokens
///   uniform: no logits; random experts for each token, see UniformChoices. In training, they are determined by the
///       step and the token's index in the batch, otherwise only by the position in the sequence [THOR]
class Router {
 public:
  /// The units that take the parameters with and without gradients.
  struct Units {
    ParameterUnit &trained, &untrained;
  };
  /// Creates the router of `mixture` and adds its parameters to `units`. `prefix`: prefix of the tensor names, that of
  /// the half of the block. `groups`: the group of each choice, for moe.group_limit and the device-level balance loss.
  Router(const Config& config, const Mixture& mixture, const std::string& prefix, const Units& units,
         const Placement& groups);

  struct Choices {
    Variable gates;  // [tokens, top_k], the best choice first
    Tensor index;    // i32 [tokens, top_k]: the expert of each gate, or −1
    /// The load of this rank's tokens, see Route. Undefined without has_scores(), and if neither losses nor a tally
    /// need it.
    Variable load;
    Variable logits = {};  // [tokens, choices]; undefined without has_scores()
  };
  /// Routes this rank's range of the tokens. x: [tokens, hidden]. `tally`: takes the routing counts of this mixture;
  /// null for none. A pass that the tape replays for recomputation is not counted. If the mixture has k = 0, the router
  /// computes logits only, and `index` has no columns.
  Choices forward(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;

  /// Returns the losses of this pass, computed from the load of its choices and from the router's weights; empty
  /// outside of training. `data`: the ranks that compute other sequences at the same time. Collective over the tensor
  /// group, and over `data` unless balance.scope = sequence.
  std::vector<Loss> losses(Tape& tape, const Pass& pass, const Variable& load, const ProcessGroup& data) const;

  /// True if update() adjusts the selection bias from routing counts.
  bool learns_from_counts() const { return bias_ && balance_.bias_rate > 0; }
  /// Adjusts the selection bias, see BalanceBias. `counts`: i64 [1, experts], the number of tokens that chose each
  /// expert as any of their k choices, over a whole step and all ranks of the stage. Does nothing if the verdict is to
  /// skip the step, or unless learns_from_counts().
  void update(const Stream& stream, const Tensor& counts, std::span<const StepVerdict> verdict) const;

 private:
  /// Returns the layer by which random numbers of this router are drawn.
  std::int64_t random_layer() const;
  /// Returns gate/weight, which has one row per choice; null without has_scores().
  Parameter* choice_rows() const;
  /// Returns TokenBatch::choices if it applies to this mixture; otherwise an undefined tensor.
  Tensor step_choices(const Pass& pass) const;
  Choices choose(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;
  /// Makes the choices of RouterKind::uniform. `type`: that of the activations.
  Choices choose_uniformly(Tape& tape, const Pass& pass, DType type, const RoutingTally& tally) const;
  /// Returns the logits [tokens, choices]. Must not be called without has_scores().
  Variable logits(Tape& tape, const Pass& pass, const Variable& x) const;

  Mixture mixture_;
  BalanceConfig balance_;
  bool even_;
  double norm_eps_;
  std::uint64_t seed_;
  double penalty_;  // optim.router_penalty; it applies to rows from penalty_from_ on
  std::int64_t penalty_from_;
  std::vector<Parameter*> parameters_;  // in the order of router_tensors(); owned by the units
  Parameter* bias_ = nullptr;           // selection bias, the last parameter; null for softmax scores
  Parameter* logit_bias_ = nullptr;     // gate/bias; null without moe.router_bias
  Placement groups_;
};

}  // namespace lyceum
