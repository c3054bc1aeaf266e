#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "autograd/expert_bank.h"
#include "autograd/tape.h"
#include "io/config.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Keys and values of one sequence's past, for decoding: [capacity, kv_heads · head_dim] each.
struct KeyValueCache {
  Tensor keys, values;
  std::int64_t length = 0;
};

/// Causal self-attention with rotary positions and grouped queries.
class AttentionLayer {
 public:
  AttentionLayer(const ModelConfig& config, const std::string& prefix, ParameterUnit& unit);
  /// x [sequences · seq_len, hidden]; `rope`: the table of RopeTable, accumulator type.
  Variable forward(Tape& tape, const Variable& x, std::int64_t seq_len, const Tensor& rope) const;
  /// x [new tokens, hidden] of one sequence that goes on from `cache`; appends to it.
  Tensor decode(const Stream& stream, const Tensor& x, KeyValueCache& cache, const Tensor& rope) const;
  /// Elements of a row of keys.
  std::int64_t key_width() const { return kv_heads_ * head_dim_; }

 private:
  std::int64_t heads_, kv_heads_, head_dim_;
  Parameter* qkv_;
  Parameter* out_;
};

/// A dense SwiGLU FFN: a bank of one expert on all rows.
class FeedForward {
 public:
  FeedForward(const std::string& prefix, std::int64_t hidden, std::int64_t width, double init_std, ParameterUnit& unit);
  Variable forward(Tape& tape, const Variable& x) const;

 private:
  std::shared_ptr<const std::vector<ExpertBank::Expert>> expert_;
};

/// What a layer's router did with this rank's tokens.
struct RoutingSums {
  std::int64_t layer = 0, top_k = 0, experts = 0;
  std::vector<std::int64_t> counts;  // [top_k · experts]
  std::vector<double> probability;   // [experts]: sum of scores over tokens
};

/// Tokens of the busiest expert over the mean of all, whatever their rank among a token's choices.
double imbalance(const RoutingSums& sums);

/// Shared experts plus a routed bank: router → dispatch → experts → combine. [DeepSeekMoE eq. 9–11]
class MoeLayer {
 public:
  struct Losses {
    Variable expert, device, z;  // sums over this rank's sequences; undefined values where a factor is 0
  };
  MoeLayer(const Config& config, const std::string& prefix, const Mesh& mesh, ParameterUnit& dense,
           ParameterUnit& experts);

  /// `sums` may be null; it takes this call's counts on top of what it holds.
  std::pair<Variable, Losses> forward(Tape& tape, const Variable& x, std::int64_t seq_len, RoutingSums* sums) const;
  const Placement& placement() const { return placement_; }

 private:
  Losses losses(Tape& tape, const Variable& logits, const Variable& scores, const Tensor& index,
                std::int64_t seq_len) const;

  MoeConfig moe_;
  BalanceConfig balance_;
  const Mesh* mesh_;
  Placement placement_;
  Parameter* router_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> experts_;
  std::optional<FeedForward> shared_;
};

/// Width of each routed expert.
std::vector<std::int64_t> expert_widths(const MoeConfig& moe);

/// One SwiGLU expert's two matrices, named as gate_proj, up_proj, down_proj under `prefix`.
ExpertBank::Expert add_expert(ParameterUnit& unit, const std::string& prefix, std::int64_t hidden, std::int64_t width,
                              double init_std);

}  // namespace lyceum
