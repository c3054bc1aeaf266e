#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/expert_bank.h"
#include "autograd/sub_dimensions.h"
#include "config/config.h"
#include "kernels/sub_dimension_scaling.h"
#include "model/attention/heads.h"
#include "model/routing/router.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Return the specs of multi-head attention and of a dense FFN with sub-dimensions. `mixture` describes the
/// sub-dimensions of hidden that the half reads and writes. A token uses those that its router chooses and those that
/// are always active.
SublayerSpec sub_dimension_attention_spec(const Config& config, const Mixture& mixture);
SublayerSpec sub_dimension_ffn_spec(const Config& config, const Mixture& mixture);

/// Routing and mixing of sub-dimensions [MoHD], for a half of a block whose matrices read and write only the
/// sub-dimensions of hidden that a token uses. Attention and FFN share this class. It has three parts: the router,
/// which chooses sub-dimensions for each token; the factors that scale each sub-dimension of the output; and the
/// fusion, a Monarch matrix that mixes the sub-dimensions of the output.
class SubDimensions {
 public:
  /// Adds the parameters of router and fusion to `units`. Every rank holds all of them. `prefix`: prefix of the tensor
  /// names, without a slash at the end. `mesh` must outlive this.
  SubDimensions(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                const SublayerUnits& units);

  /// The sub-dimensions that the tokens of a pass use. Covers all tokens of the tensor group, not only this rank's
  /// range.
  struct Routing {
    std::shared_ptr<const SubDimensionChoices> choices;
    /// [tokens, sub-dimensions]: factors of the output; 0 for a sub-dimension that the token does not use.
    Variable factors;
    std::vector<Loss> losses;
    bool input_gates;  // the factors apply to the input, too
  };
  /// Routes the tokens and computes the losses of their router. Collective over the tensor group, and in training with
  /// balance.scope = batch or global also over the data ranks. x: [rows, hidden], in the layout between matrices.
  /// `tally`: takes the routing counts of this rank's range of tokens; null for none.
  Routing route(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;
  /// Returns y after the fusion; y itself without one. y: [rows, hidden], in the layout between matrices.
  Variable apply_fusion(Tape& tape, const TokenLayout& layout, const Variable& y) const;

  const Mixture& mixture() const { return mixture_; }
  const Router& router() const { return router_; }

 private:
  /// Returns the balance loss of sub-dimensions; nothing outside of training or if its factor is 0. Collective as
  /// route() is.
  std::optional<Loss> balance(Tape& tape, const Pass& pass, const Router::Choices& chosen) const;

  Mixture mixture_;
  const Mesh* mesh_;
  Placement on_one_rank_;  // one rank holds all sub-dimensions, since every rank has all
  SubDimensionScaling scaling_;
  bool input_gates_;
  double balance_;
  BalanceScope scope_;
  Router router_;
  Parameter *in_ = nullptr, *out_ = nullptr;  // the two factors of the fusion; null without one
};

/// Base of the halves that read and write only the sub-dimensions of hidden that a token uses.
class SubDimensionHalf : public Sublayer {
 public:
  /// Both return null if nothing is left to choose, since all active sub-dimensions are shared.
  const Mixture* mixture() const override { return chooses() ? &sub_dimensions_.mixture() : nullptr; }
  const Router* router() const override { return chooses() ? &sub_dimensions_.router() : nullptr; }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 protected:
  SubDimensionHalf(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const SublayerUnits& units)
      : sub_dimensions_(config, mixture, prefix, mesh, units) {}
  /// Routes the tokens as SubDimensions::route() does, and counts them if the pass is counted.
  SubDimensions::Routing route(Tape& tape, const Pass& pass, const Variable& x) const {
    return sub_dimensions_.route(tape, pass, x, pass.counts && chooses() ? &tally_ : nullptr);
  }
  /// Returns x · Wᵀ of the active sub-dimensions of x, which is in the layout between matrices.
  Variable read(Tape& tape, const TokenLayout& layout, const SubDimensions::Routing& routing, Parameter* weight,
                const Variable& x) const;
  const SubDimensions& sub_dimensions() const { return sub_dimensions_; }

 private:
  bool chooses() const { return sub_dimensions_.mixture().k > 0; }

  RoutingTally tally_{};
  SubDimensions sub_dimensions_;
};

/// Multi-head attention whose queries, keys and values are computed from the sub-dimensions that a token uses. Before
/// the fusion, the output is 0 in all other sub-dimensions.
class SubDimensionAttention : public SubDimensionHalf {
 public:
  /// Adds its parameters to `units`. `prefix`: prefix of the tensor names. `mesh` must outlive this.
  SubDimensionAttention(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                        const SublayerUnits& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  AttentionHeads heads_;
  Parameter *qkv_, *out_;
};

/// A dense FFN that reads and writes only the sub-dimensions that a token uses.
class SubDimensionFeedForward : public SubDimensionHalf {
 public:
  /// Adds its parameters to `units`. `prefix`: prefix of the tensor names. `mesh` must outlive this.
  SubDimensionFeedForward(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                          const SublayerUnits& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  ActivationFunction activation_;
  ExpertBank::Expert matrices_;
};

}  // namespace lyceum
