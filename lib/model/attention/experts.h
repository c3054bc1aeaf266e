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

/// `mixture`: the experts of a layer's attention.
SublayerSpec attention_experts_spec(const Config& config, const Mixture& mixture);

/// Attention experts: each has its own queries and output, experts/N/q_proj and experts/N/o_proj, and all of them the
/// same keys and values, k_proj and v_proj. A token's router chooses k, whose queries act as separate heads:
/// y = Σ gate · O_e · attention(Q_e · x, K, V) [ModuleFormer].
/// The ranks of the tensor group share the heads of every expert; each has all tokens, of which it routes its run.
class AttentionExperts : public Sublayer {
 public:
  using Units = SublayerUnits;
  AttentionExperts(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const Units& units);

  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  const Mixture* mixture() const override { return &mixture_; }
  const Router* router() const override { return &router_; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 private:
  using Weights = std::shared_ptr<const std::vector<Parameter*>>;  // one per expert

  /// Returns the chosen experts' answers to all tokens, each by the heads of this rank.
  Variable chosen(Tape& tape, const Pass& pass, const Variable& x, const Variable& gates, const Tensor& index) const;

  Mixture mixture_;
  RoutingTally tally_{};
  const Mesh* mesh_;
  AttentionHeads heads_;  // of all chosen experts of a token
  Router router_;
  Parameter* keys_values_;
  Weights queries_, outputs_;
};

}  // namespace lyceum
