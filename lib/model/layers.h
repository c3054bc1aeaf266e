#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/expert_bank.h"
#include "config/config.h"
#include "model/attend.h"
#include "model/routing/expert_places.h"
#include "model/routing/router.h"
#include "model/sublayer.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/token_exchange.h"
#include "parallel/tensor/qk_norm.h"

namespace lyceum {

/// This rank's parts of attention's matrices.
struct AttentionMatrices {
  Parameter *qkv, *out;  // [queries + 2 · keys, hidden], [hidden, queries]
};
/// Named as q_proj, k_proj, v_proj and o_proj under `prefix`.
AttentionMatrices add_attention(ParameterUnit& unit, const std::string& prefix, const ModelConfig& config,
                                const AttentionHeads& heads, const ProcessGroup& tensor);

/// Causal self-attention with grouped queries, by softmax with rotary positions or by breaking sticks; the ranks of
/// `tensor` share the heads. With model.qkv_bias the projections have biases q_proj/bias, k_proj/bias, v_proj/bias, cut
/// as their rows; with model.qk_norm queries and keys are normed, by the weights q_norm/weight and k_norm/weight: of a
/// head, which all ranks have, or of all heads, cut likewise.
class AttentionLayer : public Sublayer {
 public:
  /// Where the parameters go, by who holds copies.
  struct Units {
    ParameterUnit &dense, &replicated;
  };
  /// Throws a usage Error where the heads do not divide.
  AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor, const Units& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  AttentionHeads heads_;
  AttentionMatrices matrices_;
  Parameter* bias_ = nullptr;  // [queries + 2 · keys]
  std::optional<QkNorm> norm_;
};

/// Attention experts: each has its own queries and output, and all of them the same keys and values. A token's
/// router chooses k, whose queries act as separate heads: y = Σ gate · O_e · attention(Q_e · x, K, V) [ModuleFormer].
/// The ranks of `tensor` share the heads of every expert; each has all tokens, of which it routes its run.
class AttentionExperts : public Sublayer {
 public:
  /// As MoeLayer's, where experts are no more placed than other dense weights.
  struct Units {
    ParameterUnit &dense, &replicated, &untrained;
  };
  AttentionExperts(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const Units& units);

  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  const Mixture* mixture() const override { return &mixture_; }
  const Router* router() const override { return &router_; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 private:
  using Weights = std::shared_ptr<const std::vector<Parameter*>>;  // an expert's each

  /// The chosen experts' answers to all tokens, each by the heads of this rank.
  Variable chosen(Tape& tape, const Pass& pass, const Variable& x, const Variable& gates, const Tensor& index) const;

  Mixture mixture_;
  RoutingTally tally_{};
  const Mesh* mesh_;
  AttentionHeads heads_;
  Router router_;
  Parameter* keys_values_;
  Weights queries_, outputs_;
};

/// A dense FFN: a bank of one expert on all rows; the ranks of `tensor` share its width.
class FeedForward : public Sublayer {
 public:
  FeedForward(const ModelConfig& config, const std::string& prefix, std::int64_t width, const ProcessGroup& tensor,
              ParameterUnit& unit);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  Activation activation_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> expert_;
};

/// Shared experts plus a routed bank: router → dispatch → experts → combine. [DeepSeekMoE eq. 9–11]
/// Each tensor rank routes its own run of the tokens, to experts all over the expert group; the ranks of an
/// expert_tensor group share the widths of the same experts. With moe.latent_hidden = d the bank works on W_down · x
/// and its sum goes through W_up; W_down = latent/down/weight [d, hidden], W_up = latent/up/weight [hidden, d]
/// [LatentMoE]. Experts without weights give nothing, or x, where the token is [MoE++]. With moe.shared_gate the answer
/// of the shared experts is multiplied by σ(x · w), w = shared_expert_gate/weight [1, hidden] [Qwen2-MoE].
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
  /// Those of the choices of this rank's run within the capacity of the experts, where that is limited.
  Tensor kept(const Tape& tape, const Pass& pass, const Tensor& index) const;
  /// The shared experts' answers to x, of which `run` is this rank's run.
  Variable shared(Tape& tape, const Pass& pass, const Variable& x, const Variable& run) const;
  /// The answers of the routed experts with weights to tokens that have `hops` before them. What `meanwhile` applies
  /// runs while tokens travel the first hop; without hops, after the experts.
  Variable routed(Tape& tape, const TokensAndChoices& tokens, std::span<const Hop> hops,
                  const std::function<void()>& meanwhile) const;
  /// Of this rank's experts, to tokens that are here: with the ranks that share their widths, or of those held whole or
  /// in part here alone.
  Variable shared_out(Tape& tape, const TokensAndChoices& tokens) const;
  Variable computed(Tape& tape, const TokensAndChoices& tokens) const;

  Mixture mixture_;
  RoutingTally tally_{};
  const Mesh* mesh_;
  ExpertPlaces places_;
  ExpertRoute route_;
  Router router_;
  Parameter *down_ = nullptr, *up_ = nullptr;  // to and from the width that the bank works in, where it has its own
  bool overlaps_;                              // whether anything is computed while tokens travel
  Activation activation_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> experts_;
  std::optional<FeedForward> shared_;
  Parameter* shared_gate_ = nullptr;
};

/// An expert of `width`, of which `part` is to be held.
struct ExpertShape {
  std::int64_t hidden, width;
  Range part;
};
/// One expert's two matrices, named as gate_proj (of SwiGLU), up_proj, down_proj under `prefix`.
ExpertBank::Expert add_expert(ParameterUnit& unit, const std::string& prefix, const ModelConfig& model,
                              const ExpertShape& shape);

}  // namespace lyceum
