#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/rms_norm.h"
#include "autograd/tape.h"
#include "config/config.h"
#include "kernels/weight_update.h"
#include "model/routing/expert_places.h"
#include "model/routing/routing_statistics.h"
#include "model/sublayer.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Llama blocks with sparse FFNs: embedding → layers of (norm, attention or attention experts, norm, FFN or MoE) → norm
/// → head. Holds what this rank owns of the parameters: tensor ranks share heads, dense widths and vocabulary [Shoeybi
/// et al. 2019], all ranks of a stage the experts. A pipeline stage holds some of the blocks: the first stage the
/// embedding too, the last one final norm and head. The configuration must be resolved and checked.
class Transformer {
 public:
  /// `train`: units get their memory from whoever trains them (Zero); else values, uninitialised: call initialize() or
  /// load them, and moe.capacity_factor holds in every pass, not in those with a step alone. `parts`: of this stage,
  /// one at least; none: all. `measured`: load of the experts, where parallel.placement goes by it.
  Transformer(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train,
              std::optional<StageParts> parts = {}, std::span<const ExpertLoad> measured = {});
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  void initialize(std::uint64_t seed);

  /// Scalars in accumulator precision, to be divided by the tokens and the sequences of the global batch. All ranks of
  /// a tensor group, which work on the same batch, get the same.
  struct Losses {
    Variable cross_entropy;  // sum over the batch's tokens, nats; of the last stage
    struct OfLayer {
      std::int64_t layer;
      Loss loss;
    };
    std::vector<OfLayer> layers;  // of the blocks, in the order of forward
  };
  /// With all blocks.
  Losses forward(Tape& tape, const TokenBatch& batch);

  /// A stage's part of forward. x: what the stage before gave; undefined in the first stage, which reads the inputs.
  struct StageResult {
    Variable y;  // for the next stage; undefined in the last one, which reads the targets
    Losses losses;
  };
  StageResult forward_stage(Tape& tape, const TokenBatch& batch, const Variable& x);
  /// What passes between stages for a batch of `tokens`: [rows, hidden] in the model's type.
  Shape boundary(std::int64_t tokens, std::int64_t seq_len) const;
  DType type() const { return type_; }
  bool first_stage() const { return embedding_ != nullptr; }
  bool last_stage() const { return final_norm_ != nullptr; }
  /// Whether its batches must have their tokens, see lyceum::reads_tokens().
  bool reads_tokens() const { return reads_tokens_; }
  /// The table that is embedding in the first stage and head in the last, where those are two stages, each with a unit
  /// for it; null elsewhere. To stay equal, both need the sum of both gradients before an update. The last stage's is
  /// the twin.
  ParameterUnit* shared_table() const { return shared_table_; }

  /// Logits [1, vocab] of the last of `tokens`, which follow what the caches hold; they take these tokens too. Throws a
  /// usage Error unless all blocks and heads are on this rank.
  Tensor next_logits(std::span<const std::int32_t> tokens, std::vector<KeyValueCache>& caches) const;
  /// One a block, for a sequence of at most so many positions.
  std::vector<KeyValueCache> new_caches(std::int64_t capacity) const {
    return std::vector<KeyValueCache>(blocks_.size(), KeyValueCache{.capacity = capacity});
  }

  /// In the order of forward.
  std::span<ParameterUnit* const> units() const { return units_; }

  /// Routing of all forward passes since the last clear, a mixture each; passes do not count while it is switched off.
  /// Waits for the device.
  std::vector<RoutingSums> routing() const;
  /// What the blocks route to, in the order of forward.
  std::span<const Mixture> mixtures() const { return mixtures_; }
  void count_routing(bool on) { counting_ = on; }
  /// From now on routers pass over so many of the best experts of every token, see Route::skip.
  void skip_top(std::int64_t experts) { skip_top_ = experts; }
  void clear_routing();
  /// Collective over the ranks of the stage: adjusts routers by the choices counted since the last clear, which are
  /// those of a whole step, unless the step is skipped, see Router::update(). The host does not wait.
  void update_routers(std::span<const StepVerdict> verdict) const;

 private:
  struct Block {
    std::int64_t layer;
    Parameter* attention_norm;
    std::unique_ptr<Sublayer> attention;
    Parameter* ffn_norm;
    std::unique_ptr<Sublayer> ffn;
  };
  void make_tallies();
  /// What optim.train_only does not name is not trained.
  void freeze();
  void add_block(std::int64_t layer, std::span<const ExpertLoad> measured);
  Parameter& add_table(const std::string& name, std::int64_t layer);
  TokenLayout layout_of(std::int64_t tokens, std::int64_t seq_len) const;
  RmsNorm norm(const TokenLayout& layout, Parameter* weight) const;
  Variable embed(Tape& tape, const TokenLayout& layout, const Tensor& tokens) const;
  Sublayer::Result run_block(Tape& tape, const Pass& pass, const Block& block, const Variable& x) const;
  /// `caches`: one a block, or none.
  Variable blocks(Tape& tape, Pass pass, Variable x, Losses& losses, std::span<KeyValueCache> caches = {}) const;
  /// What the head reads: all tokens, through the final norm.
  Variable head_input(Tape& tape, const TokenLayout& layout, const Variable& x) const;
  Variable cross_entropy(Tape& tape, const TokenLayout& layout, const Variable& x, const TokenBatch& batch) const;

  ParameterUnit& add_unit(const std::string& name, ParameterUnit::Group group, std::int64_t layer);
  ParameterUnit& own(std::unique_ptr<ParameterUnit> unit);

  Config config_;
  Stream stream_;
  const Mesh* mesh_;
  DType type_;
  Range words_;  // of the vocabulary: this rank's rows of embedding and head
  std::vector<std::unique_ptr<ParameterUnit>> own_units_;
  std::vector<ParameterUnit*> units_;
  std::vector<Block> blocks_;
  Parameter* embedding_ = nullptr;   // in the first stage
  Parameter* final_norm_ = nullptr;  // in the last one
  Parameter* head_ = nullptr;        // likewise
  ParameterUnit* shared_table_ = nullptr;
  Tensor rope_;
  std::vector<Sublayer*> routed_;  // those with a router, in the order of forward
  std::vector<Mixture> mixtures_;  // theirs
  Tensor counts_, probability_;    // all tallies, one after another: i64, and f64 with each one's entropy behind it
  Tensor dropped_;                 // likewise, of those that are limited: i64
  bool counting_ = true, trains_, reads_tokens_;
  std::int64_t skip_top_ = 0;
};

}  // namespace lyceum
