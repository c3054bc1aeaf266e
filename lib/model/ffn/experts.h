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
#include "model/routing/expert_places.h"
#include "model/routing/router.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/token_exchange.h"

namespace lyceum {

/// `mixture`: the routed experts of a layer's FFN.
SublayerSpec ffn_experts_spec(const Config& config, const Mixture& mixture);

/// The gate of shared experts, [1, hidden].
SublayerTensor shared_gate_tensor(const ModelConfig& model);
/// Parameters of a routed expert for each unit of its width.
std::int64_t expert_column(const Config& config);

/// Shared experts plus a routed bank: router → dispatch → experts → combine. [DeepSeekMoE eq. 9–11]
/// Each tensor rank routes its own run of the tokens, to experts all over the expert group; the ranks of an
/// expert_tensor group share the widths of the same experts. With moe.latent_hidden = d the bank works on W_down · x
/// and its sum goes through W_up; W_down = latent/down/weight [d, hidden], W_up = latent/up/weight [hidden, d]
/// [LatentMoE]. Experts without weights give nothing, or x, where the token is [MoE++]. With moe.shared_gate the answer
/// of the shared experts is multiplied by σ(x · w), w = shared_expert_gate/weight [1, hidden] [Qwen2-MoE].
class MoeLayer : public Sublayer {
 public:
  /// `mixture`: the routed experts.
  MoeLayer(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
           const SublayerUnits& units, ExpertPlaces places);

  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  const Mixture* mixture() const override { return &mixture_; }
  const Router* router() const override { return &router_; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 private:
  /// Returns the choices of this rank's run, those beyond an expert's capacity replaced by choices of no expert.
  Tensor drop_over_capacity(const Tape& tape, const Pass& pass, const Tensor& index) const;
  /// Returns the shared experts' answers to x; `run` is this rank's run of it.
  Variable run_shared(Tape& tape, const Pass& pass, const Variable& x, const Variable& run) const;
  /// Returns the answers of the routed experts with weights to tokens that have `hops` before them. What `meanwhile`
  /// applies runs while tokens travel the first hop; without hops, after the experts.
  Variable run_routed(Tape& tape, const TokensAndChoices& tokens, std::span<const Hop> hops,
                      const std::function<void()>& meanwhile) const;
  /// Returns the answers of this rank's experts to tokens that are on this rank: summed over the ranks that share the
  /// experts' widths, or of the part that this rank holds.
  Variable run_sharded_experts(Tape& tape, const TokensAndChoices& tokens) const;
  Variable run_local_experts(Tape& tape, const TokensAndChoices& tokens) const;

  Mixture mixture_;
  RoutingTally tally_{};
  const Mesh* mesh_;
  ExpertPlaces places_;
  ExpertRoute route_;
  Router router_;
  Parameter *down_ = nullptr, *up_ = nullptr;  // to and from moe.latent_hidden; null without it
  bool overlaps_;                              // true if something is computed while tokens travel
  Activation activation_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> experts_;
  std::optional<FeedForward> shared_;
  Parameter* shared_gate_ = nullptr;
};

}  // namespace lyceum
