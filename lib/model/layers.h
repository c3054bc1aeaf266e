#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "autograd/expert_bank.h"
#include "autograd/tape.h"
#include "io/config/config.h"
#include "model/expert_places.h"
#include "model/router.h"
#include "parallel/comm/mesh.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

/// Keys and values of one sequence's past, for decoding: [capacity, kv_heads · head_dim] each.
struct KeyValueCache {
  Tensor keys, values;
  std::int64_t length = 0;
};

/// Causal self-attention with rotary positions and grouped queries; the ranks of `tensor` share the heads.
class AttentionLayer {
 public:
  /// Throws a usage Error where the heads do not divide.
  AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor, ParameterUnit& unit);
  /// x as it lies between matrices, [rows, hidden]; `rope`: the table of RopeTable, accumulator type.
  Variable forward(Tape& tape, const TokenLayout& layout, const Variable& x, const Tensor& rope) const;
  /// x [new tokens, hidden] of one sequence that goes on from `cache`; appends to it. With all heads on this rank.
  Tensor decode(const Stream& stream, const Tensor& x, KeyValueCache& cache, const Tensor& rope) const;
  /// Elements of a row of keys.
  std::int64_t key_width() const { return kv_heads_ * head_dim_; }

 private:
  std::int64_t heads_, kv_heads_, head_dim_;  // of this rank
  Parameter* qkv_;
  Parameter* out_;
};

/// A dense SwiGLU FFN: a bank of one expert on all rows; the ranks of `tensor` share its width.
class FeedForward {
 public:
  FeedForward(const ModelConfig& config, const std::string& prefix, std::int64_t width, const ProcessGroup& tensor,
              ParameterUnit& unit);
  Variable forward(Tape& tape, const TokenLayout& layout, const Variable& x) const;

 private:
  std::shared_ptr<const std::vector<ExpertBank::Expert>> expert_;
};

/// What a layer's router did with this rank's run of the tokens.
struct RoutingSums {
  std::int64_t layer = 0, top_k = 0, experts = 0;
  std::vector<std::int64_t> counts;  // [top_k · experts]
  std::vector<double> probability;   // [experts]: sum of probabilities over tokens
};

/// The sums of no tokens yet.
RoutingSums no_routing(const Config& config, std::int64_t layer);

/// Tokens of the busiest expert over the mean of all, whatever their rank among a token's choices.
double imbalance(const RoutingSums& sums);

/// Shared experts plus a routed bank: router → dispatch → experts → combine. [DeepSeekMoE eq. 9–11]
/// Each tensor rank routes its own run of the tokens, to experts all over the expert group; the ranks of an
/// expert_tensor group share the widths of the same experts.
class MoeLayer {
 public:
  /// Sums over the sequences of this rank, the same on all ranks of its tensor group; undefined values where a factor
  /// is 0.
  struct Losses {
    Variable expert, device, z;
  };
  /// Where the layer's parameters go, by who holds copies: shared experts, router, routed experts; and what of the
  /// router is not trained.
  struct Units {
    ParameterUnit &dense, &replicated, &experts, &untrained;
  };
  MoeLayer(const Config& config, const std::string& prefix, std::int64_t layer, const Mesh& mesh, const Units& units,
           ExpertPlaces places);

  /// x, and the answer, as they lie between matrices. `tally` may be null; it takes this call's counts of this rank's
  /// run on top of what it holds.
  std::pair<Variable, Losses> forward(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const;
  const Router& router() const { return router_; }

 private:
  /// The routed experts' answers to a run of tokens.
  Variable routed(Tape& tape, const Variable& x, const Variable& gates, const Tensor& index) const;
  /// Of the load that Route made of a run of tokens.
  Losses losses(Tape& tape, const TokenLayout& layout, const Variable& load) const;

  MoeConfig moe_;
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
