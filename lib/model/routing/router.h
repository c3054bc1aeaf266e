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

/// Throws a usage Error unless every router of the configuration can pass over a token's `skip` best experts and have
/// moe.top_k others.
void require_skippable(const Config& config, std::int64_t skip);

/// Chooses the experts of tokens: makes logits as its mixture's router does, and one pass over them makes gates and
/// choices. What follows does not know which router it was.
///   softmax  x · Wᵀ; W = gate/weight [experts, hidden]
///   sigmoid  the same, by sigmoid scores; chosen by score + b with b = gate/e_score_correction_bias [experts], which
///            counts of choices move and no gradient does [DeepSeek-V3]
///   sqrt_softplus  as sigmoid, by scores √softplus [DeepSeek-V4]
///   random   as softmax, and W stays as it was drawn [SMoE-Dropout]
///   mlp      A · ReLU(B · x); B = gate/in/weight [router_hidden, hidden], A = gate/weight [experts, router_hidden]
///   noisy    x · Wᵀ + ε ⊙ softplus(γ ⊙ RMSNorm(x · W_nᵀ)) with W_n = gate/noise/weight [experts, hidden], γ =
///            gate/noise_scale [experts], ε ~ N(0, 1); x · Wᵀ where nothing is random [Shazeer et al. 2017, MoDSE]
///   hash     no logits: an expert is a function of token and layer, see HashTokens
class Router {
 public:
  /// Where the parameters go: those that are trained, and the others.
  struct Units {
    ParameterUnit &trained, &untrained;
  };
  /// Of a mixture in the half of a block whose tensors are under `prefix`. `groups`: of its choices, for
  /// moe.group_limit and the device-level balance loss.
  Router(const Config& config, const Mixture& mixture, const std::string& prefix, const Units& units,
         const Placement& groups);

  struct Choices {
    Variable gates;        // [tokens, top_k], best choice first
    Tensor index;          // i32 [tokens, top_k]: the experts that they belong to
    Variable load;         // as Route's, where there are losses or a tally; undefined of a hash
    Variable logits = {};  // [tokens, choices]; undefined of a hash
  };
  /// x: this rank's run of the pass, [tokens, hidden]. `tally`: of this layer, or null; not counted where the tape
  /// replays.
  Choices forward(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;

  /// In training, of the load of its choices in this pass, and of its weights; `data`: the ranks that run other
  /// sequences at the same time.
  std::vector<Loss> losses(Tape& tape, const Pass& pass, const Variable& load, const ProcessGroup& data) const;

  /// True if update() adjusts the selection bias from routing counts.
  bool learns_from_counts() const { return bias_ && balance_.bias_rate > 0; }
  /// Adjusts the selection bias by the choices of a whole step, i64 [top_k, experts], unless the step is skipped.
  void update(const Stream& stream, const Tensor& counts, std::span<const StepVerdict> verdict) const;

 private:
  /// gate/weight, whose rows are choices; null of a hash.
  Parameter* choice_rows() const;
  /// Pass::choices, where it is about this mixture.
  Tensor step_choices(const Pass& pass) const;
  Choices choose(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;
  Variable logits(Tape& tape, const Pass& pass, const Variable& x) const;

  Mixture mixture_;
  BalanceConfig balance_;
  bool even_;
  double norm_eps_;
  std::uint64_t seed_;
  double penalty_;  // optim.router_penalty, for the rows from penalty_from_ on
  std::int64_t penalty_from_;
  std::vector<Parameter*> parameters_;  // in the order of router_tensors()
  Parameter* bias_ = nullptr;           // where scores are no softmax; the last of them
  Placement groups_;
};

}  // namespace lyceum
