#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/rms_norm.h"
#include "autograd/tape.h"
#include "config/config.h"
#include "kernels/weight_update.h"
#include "model/routing/expert_placements.h"
#include "model/routing/routing_statistics.h"
#include "model/sublayer.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// A decoder of Llama blocks with sparse FFNs: embedding → layers of (norm, attention or attention experts, norm, FFN
/// or MoE) → norm → head. It holds this rank's part of the parameters: tensor ranks share heads, dense widths and
/// vocabulary [Shoeybi et al. 2019], and all ranks of a stage share the experts. A pipeline stage holds some of the
/// blocks; the first stage also has the embedding, the last one the final norm, the head and the modules of multi-token
/// prediction (see PredictionModule). The configuration must be resolved and checked.
class Transformer {
 public:
  /// `train`: true for training. The trainer (Zero) then allocates the units later, and moe.capacity_factor applies to
  /// training passes only. If false, the constructor allocates zeroed values (call initialize() or load them), and
  /// moe.capacity_factor applies to every pass. `parts`: the parts of this stage, at least one; if empty, the whole
  /// model. `measured`: loads of the experts, for parallel.placement = cost. `mesh` must outlive this.
  Transformer(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train,
              std::optional<StageParts> parts = {}, std::span<const ExpertLoad> measured = {});
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// Continues with the batch, the rotary positions and the scale of scores of another training stage. The
  /// configurations of both stages may differ only in keys that a stage may set (config/training_stages.h). Call
  /// between steps.
  void set_stage(const Config& config);

  /// Writes the initial values of all parameters, which depend on the seed and the logical tensors only. Every unit
  /// must have memory for all its values; in training, use Zero::initialize() instead.
  void initialize(std::uint64_t seed);

  /// The losses of one pass, scalars in accumulator precision, as sums: divide those of the head by the tokens and the
  /// others by the sequences of the global batch to get means. All ranks of a tensor group work on the same batch and
  /// get the same values.
  struct Losses {
    Variable cross_entropy;  // sum over the batch's tokens, in nats; undefined except in the last stage
    struct OfLayer {
      std::int64_t layer;
      Loss loss;
    };
    /// Losses of the blocks, in forward order. In a training pass, the losses of the head (LossKind::head_z and
    /// LossKind::consistency) and those of the modules' blocks and of the modules (LossKind::mtp) follow. These three
    /// kinds are sums over tokens without their factors, which are model.z_loss, model.consistency and module_weight().
    std::vector<OfLayer> layers;
  };
  /// Runs the whole model. Throws an Error if this is not the last stage or if the first stage is missing.
  Losses forward(Tape& tape, const TokenBatch& batch);

  /// The result of one pipeline stage.
  struct StageResult {
    Variable y;  // input of the next stage; undefined in the last one, which reads the targets
    Losses losses;
  };
  /// Runs one pipeline stage. x: the result of the previous stage; undefined in the first stage, which reads the inputs
  /// of the batch. Throws an Error for sequences longer than batch.seq_len, and if x is missing or unexpected.
  /// Collective over the ranks of the stage.
  StageResult forward_stage(Tape& tape, const TokenBatch& batch, const Variable& x);
  /// Returns the shape of the activations that are sent between stages for a batch of `tokens`: [rows, hidden], in the
  /// model's type.
  Shape boundary(std::int64_t tokens, std::int64_t seq_len) const;
  DType type() const { return type_; }
  bool first_stage() const { return first_; }
  bool last_stage() const { return final_norm_ != nullptr; }
  /// True if the batches of this stage must contain tokens, see lyceum::reads_tokens().
  bool reads_tokens() const { return reads_tokens_; }
  /// Returns the unit of the embedding table if both the first stage and another, last stage use the table: the last
  /// one as a tied head, or as the embedding of modules of multi-token prediction. Null otherwise. Each of the two
  /// stages has a unit for it. To keep both equal, both need the sum of both gradients before an update. The unit of
  /// the last stage is the twin.
  ParameterUnit* shared_table() const { return shared_table_; }

  /// Returns the logits [1, vocab], in the model's type, that follow the last of `tokens`. The tokens continue the
  /// sequence in the caches (new_caches()) and are added to them. Throws a usage Error unless all blocks and heads are
  /// on this rank, and an Error if the sequence becomes longer than batch.seq_len.
  Tensor next_logits(std::span<const std::int32_t> tokens, std::vector<KeyValueCache>& caches) const;
  /// Returns one empty cache per block, for a sequence of at most `capacity` positions. The first pass allocates their
  /// memory.
  std::vector<KeyValueCache> new_caches(std::int64_t capacity) const;

  /// Returns the units of this rank in forward order, including those that are not trained. The model owns them.
  std::span<ParameterUnit* const> units() const { return units_; }

  /// Returns the routing of all counted forward passes since the last clear_routing(), one entry per mixture, for this
  /// rank's tokens. Passes are not counted after count_routing(false). Waits for the device.
  std::vector<RoutingSums> routing() const;
  /// Returns the mixtures of this stage's blocks in forward order.
  std::span<const Mixture> mixtures() const { return mixtures_; }
  /// Returns the experts of this stage's blocks that are divided among ranks, in forward order.
  std::vector<PlacedExperts*> placed_experts() const;
  /// Switches the counting of routing on or off for later passes. It is on at first.
  void count_routing(bool on) { counting_ = on; }
  /// Makes the routers of FFNs skip this many of the best experts of every token from now on, see Route::skip.
  void skip_top(std::int64_t experts) { skip_top_ = experts; }
  /// Sets all routing counts and sums to zero.
  void clear_routing();
  /// Adjusts the selection biases of routers by the choices counted since the last clear_routing(), which must be those
  /// of a whole step; see Router::update(). Does nothing if the verdict is to skip the step. Collective over the ranks
  /// of the stage. The host does not wait.
  void update_routers(std::span<const StepVerdict> verdict) const;

 private:
  struct Block {
    std::int64_t layer;
    Parameter* attention_norm;
    std::unique_ptr<Sublayer> attention;
    Parameter* ffn_norm;
    std::unique_ptr<Sublayer> ffn;
    Parameter *attention_rate = nullptr, *ffn_rate = nullptr;  // of dropout; null unless they are learnt
  };
  // A module of multi-token prediction, see PredictionModule.
  struct Module {
    Parameter *hidden_norm, *embedding_norm, *projection, *final_norm;
    Block block;
  };
  // The units of a block that every block has.
  struct BlockUnits {
    ParameterUnit &replicated, &dense;
  };
  /// Computes the table of rotary positions.
  void make_positions();
  // Allocates the tallies of all routers in one tensor per kind and distributes views of them.
  void make_tallies();
  /// Moves the parameters of which optim.train_only names no rows to frozen units. In the others, marks the elements of
  /// unnamed rows as frozen (Parameter::frozen). Does nothing if optim.train_only is empty.
  void freeze();
  /// Moves all trained parameters to frozen or adapted units, and adds the units of adapters. For optim.lora_rank > 0.
  void adapt();
  // Adds the units of a block. `unit_layer`: their ParameterUnit::layer().
  BlockUnits add_block_units(std::int64_t layer, std::int64_t unit_layer);
  // Makes a block: adds its norms and sub-layers to the units, and further units for its experts.
  Block make_block(std::int64_t layer, const BlockUnits& units, std::span<const ExpertLoad> measured);
  void add_modules(std::span<const ExpertLoad> measured);
  // Returns the ParameterUnit::layer() of the units behind the blocks: final norm, head and modules.
  std::int64_t output_layer() const { return config_.model.layers + 1; }
  // Adds a unit with this rank's rows of a table [vocab, hidden].
  Parameter& add_table(const std::string& name, std::int64_t layer);
  TokenLayout layout_of(std::int64_t tokens, std::int64_t seq_len) const;
  RmsNorm norm(const TokenLayout& layout, Parameter* weight) const;
  Variable embed(Tape& tape, const TokenLayout& layout, const Tensor& tokens) const;
  // A position in the model at which dropout applies.
  struct DropoutSite {
    std::int64_t index;  // DropoutMask::site
    Parameter* rate;     // null unless rates are learnt
    Parameter* weight;   // this rank's part of the matrix whose products are dropped; not read unless rates are learnt
  };
  // Applies dropout to x [rows, hidden], in the layout between matrices, in a training pass with model.dropout; returns
  // x otherwise. Appends the loss of a learnt rate to `losses`.
  Variable drop(Tape& tape, const Pass& pass, const DropoutSite& site, const Variable& x,
                std::vector<Loss>& losses) const;
  // Returns the input of the first block.
  Variable embed_inputs(Tape& tape, const Pass& pass, Losses& losses) const;
  Sublayer::Result run_block(Tape& tape, const Pass& pass, const Block& block, const Variable& x) const;
  using BlockRun = std::function<Sublayer::Result(Tape& tape, const Variable& x)>;
  // Runs a block, whose backward pass runs it again with model.recompute = full, and adds its losses to `losses`.
  Variable run_recomputable(Tape& tape, std::int64_t layer, BlockRun run, const Variable& x, Losses& losses) const;
  /// `caches`: one per block, or empty.
  Variable blocks(Tape& tape, Pass pass, Variable x, Losses& losses, std::span<KeyValueCache> caches = {}) const;
  // Adds the squares of a block's output y [rows, hidden] to `sums`.
  void measure(const LayerSums& sums, std::int64_t layer, const Tensor& y) const;
  // Losses of the head in addition to the cross-entropy.
  struct HeadLosses {
    bool z = false, consistency = false;
  };
  // Runs the head on x, the result of a final norm. Returns the results of LinearCrossEntropy. Those that `wanted` does
  // not contain are undefined.
  std::array<Variable, 3> run_head(Tape& tape, const TokenLayout& layout, const Variable& x, const TokenBatch& batch,
                                   const HeadLosses& wanted) const;
  // Returns the input of a module's block. x: h_{k−1}. The batch of the pass has the shifted tokens.
  Variable join_embeddings(Tape& tape, const Pass& pass, const Module& module, const Variable& x) const;
  // Runs all modules. x: the result of the model's final norm.
  void run_modules(Tape& tape, const Pass& pass, Variable x, Losses& losses) const;

  ParameterUnit& add_unit(const std::string& name, ParameterUnit::Group group, std::int64_t layer);
  /// Takes ownership of a unit and appends it to units().
  ParameterUnit& keep_unit(std::unique_ptr<ParameterUnit> unit);

  Config config_;
  Stream stream_;
  const Mesh* mesh_;
  DType type_;
  Range words_;  // this rank's rows of embedding and head: a range of the vocabulary
  std::vector<std::unique_ptr<ParameterUnit>> own_units_;
  std::vector<ParameterUnit*> units_;
  std::vector<Block> blocks_;
  std::vector<Module> modules_;          // empty except in the last stage
  Parameter* embedding_rate_ = nullptr;  // learnt rate of the embeddings' dropout; null except in the first stage
  Parameter* embedding_ = nullptr;       // null except in the first stage, and in the last one if it has modules
  Parameter* final_norm_ = nullptr;      // null except in the last stage
  Parameter* head_ = nullptr;            // null except in the last stage
  ParameterUnit* shared_table_ = nullptr;
  Tensor rope_;
  std::vector<Sublayer*> routed_;  // sub-layers with a router, in forward order
  std::vector<Mixture> mixtures_;  // the mixture of each of these
  // All tallies in the order of routed_: counts i64; probabilities f64, with the entropy after those of each mixture.
  Tensor counts_, probability_;
  Tensor dropped_;  // dropped choices i64, for mixtures with a capacity factor only
  bool counting_ = true, trains_, reads_tokens_, first_;
  std::int64_t skip_top_ = 0;
};

}  // namespace lyceum
