#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/attention/heads.h"
#include "model/routing/router.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Returns the declaration of an attention with experts, which `mixture` describes.
SublayerSpec attention_experts_spec(const Config& config, const Mixture& mixture);

/// Attention experts [ModuleFormer]. Each expert has its own query and output projections, experts/N/q_proj and
/// experts/N/o_proj; all share the keys and values of k_proj and v_proj. A router chooses k experts for each token, and
/// their queries act as separate heads: y = Σ gate · O_e · attention(Q_e · x, K, V). Each rank of the tensor group
/// holds its share of the heads of every expert. Every rank has all tokens but routes only its range of them.
class AttentionExperts : public Sublayer {
 public:
  using Units = SublayerUnits;
  /// Adds its parameters to `units`. `prefix`: prefix of the tensor names, without a slash at the end. `mesh` must
  /// outlive this.
  AttentionExperts(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const Units& units);

  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  const Mixture* mixture() const override { return &mixture_; }
  const Router* router() const override { return &router_; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 private:
  using Weights = std::shared_ptr<const std::vector<Parameter*>>;  // one parameter per expert

  /// Returns the gated sum of the chosen experts' outputs for all tokens. It contains only the contribution of this
  /// rank's heads. gates, index: [tokens, k], for all tokens of the tensor group.
  Variable chosen(Tape& tape, const Pass& pass, const Variable& x, const Variable& gates, const Tensor& index) const;

  Mixture mixture_;
  RoutingTally tally_{};
  const Mesh* mesh_;
  AttentionHeads heads_;  // this rank's heads of one token: those of all k chosen experts
  Router router_;
  Parameter* keys_values_;
  Weights queries_, outputs_;
};

}  // namespace lyceum
