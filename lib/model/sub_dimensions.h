#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/expert_bank.h"
#include "autograd/pieces.h"
#include "config/config.h"
#include "model/attention/heads.h"
#include "model/routing/router.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Multi-head attention and a dense FFN whose matrices have rows and columns of `pieces`, of which a token uses those
/// that its router chooses and those that are always on.
SublayerSpec sub_dimension_attention_spec(const Config& config, const Mixture& pieces);
SublayerSpec sub_dimension_ffn_spec(const Config& config, const Mixture& pieces);

/// What a half of a block does with pieces of hidden (sub-dimensions) [MoHD]: a router chooses those of each token, its
/// matrices read and make these alone, the answer's pieces are scaled, and a Monarch matrix mixes them.
class SubDimensions {
 public:
  /// Where its parameters go: each rank has all of the router and the fusion.
  SubDimensions(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                const SublayerUnits& units);

  /// What a pass of tokens uses; of all tokens of a tensor group.
  struct Use {
    std::shared_ptr<const PieceChoices> choices;
    Variable factors;  // [tokens, pieces]
    std::vector<Loss> losses;
  };
  Use use(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;
  /// y, in the layout between matrices, after the fusion.
  Variable fused(Tape& tape, const TokenLayout& layout, const Variable& y) const;

  const Mixture& mixture() const { return mixture_; }
  const Router& router() const { return router_; }

 private:
  std::optional<Loss> balance(Tape& tape, const Pass& pass, const Router::Choices& chosen) const;

  Mixture mixture_;
  const Mesh* mesh_;
  Placement together_;  // all pieces, on every rank
  PieceScaling scaling_;
  double balance_;
  bool over_batch_;
  Router router_;
  Parameter *in_ = nullptr, *out_ = nullptr;  // of the fusion, where there is one
};

/// A half of a block that reads and makes the pieces of hidden that a token uses.
class SubDimensionHalf : public Sublayer {
 public:
  const Mixture* mixture() const override { return &pieces_.mixture(); }
  const Router* router() const override { return &pieces_.router(); }
  void set_tally(const RoutingTally& tally) override { tally_ = tally; }

 protected:
  SubDimensionHalf(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const SublayerUnits& units)
      : pieces_(config, mixture, prefix, mesh, units) {}
  SubDimensions::Use use(Tape& tape, const Pass& pass, const Variable& x) const {
    return pieces_.use(tape, pass, x, pass.counts ? &tally_ : nullptr);
  }
  const SubDimensions& pieces() const { return pieces_; }

 private:
  RoutingTally tally_{};
  SubDimensions pieces_;
};

/// Attention whose queries, keys and values read, and whose output makes, these pieces.
class SubDimensionAttention : public SubDimensionHalf {
 public:
  SubDimensionAttention(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                        const SublayerUnits& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  AttentionHeads heads_;
  Parameter *qkv_, *out_;
};

/// A dense FFN that does.
class SubDimensionFeedForward : public SubDimensionHalf {
 public:
  SubDimensionFeedForward(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                          const SublayerUnits& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  Activation activation_;
  ExpertBank::Expert matrices_;
};

}  // namespace lyceum
