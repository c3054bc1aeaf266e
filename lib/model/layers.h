#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "autograd/expert_bank.h"
#include "io/config/config.h"
#include "model/expert_places.h"
#include "model/router.h"
#include "model/sublayer.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Causal self-attention with grouped queries, by softmax with rotary positions or by breaking sticks; the ranks of
/// `tensor` share the heads.
class AttentionLayer : public Sublayer {
 public:
  /// Throws a usage Error where the heads do not divide.
  AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor, ParameterUnit& unit);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  std::int64_t heads_, kv_heads_, head_dim_;  // of this rank
  AttentionWeights weights_;
  Parameter* qkv_;
  Parameter* out_;
};

/// A dense SwiGLU FFN: a bank of one expert on all rows; the ranks of `tensor` share its width.
class FeedForward : public Sublayer {
 public:
  FeedForward(const ModelConfig& config, const std::string& prefix, std::int64_t width, const ProcessGroup& tensor,
              ParameterUnit& unit);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  std::shared_ptr<const std::vector<ExpertBank::Expert>> expert_;
};

/// Shared experts plus a routed bank: router → dispatch → experts → combine. [DeepSeekMoE eq. 9–11]
/// Each tensor rank routes its own run of the tokens, to experts all over the expert group; the ranks of an
/// expert_tensor group share the widths of the same experts.
class MoeLayer : public Sublayer {
 public:
  /// Where the layer's parameters go, by who holds copies: shared experts, router, routed experts; and what of the
  /// router is not trained.
  struct Units {
    ParameterUnit &dense, &replicated, &experts, &untrained;
  };
  /// `mixture`: the routed experts.
  MoeLayer(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
           const Units& units, ExpertPlaces places);

  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  const Mixture* mixture() const override { return &mixture_; }
  const Router* router() const override { return &router_; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 private:
  /// Those of the choices of this rank's run that experts have room for, where that is limited.
  Tensor kept(const Tape& tape, const Pass& pass, const Tensor& index) const;
  /// The routed experts' answers to a run of tokens.
  Variable routed(Tape& tape, const Variable& x, const Variable& gates, const Tensor& index) const;
  /// Of the load that Route made of a run of tokens.
  std::vector<Loss> losses(Tape& tape, const Pass& pass, const Variable& load) const;

  Mixture mixture_;
  RoutingTally tally_{};
  BalanceConfig balance_;
  const Mesh* mesh_;
  ExpertPlaces places_;
  Router router_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> experts_;
  std::optional<FeedForward> shared_;
};

/// A SwiGLU expert of `width`, of which `part` is to be held.
struct ExpertShape {
  std::int64_t hidden, width;
  Range part;
};
/// One SwiGLU expert's two matrices, named as gate_proj, up_proj, down_proj under `prefix`.
ExpertBank::Expert add_expert(ParameterUnit& unit, const std::string& prefix, const ExpertShape& shape,
                              double init_std);

}  // namespace lyceum
