#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "io/config.h"
#include "model/layers.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Llama blocks with sparse FFNs: embedding → layers of (norm, attention, norm, FFN or MoE) → norm → head. Holds what
/// this rank owns of the parameters. The configuration must be resolved and checked.
class Transformer {
 public:
  /// `train`: units get their memory from whoever trains them (Zero); else values, uninitialised: call initialize() or
  /// load them.
  Transformer(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  void initialize(std::uint64_t seed);

  struct Batch {
    Tensor inputs, targets;  // i32 [sequences · seq_len]
    std::int64_t seq_len;
  };
  /// Scalars in accumulator precision, to be divided by the tokens and the sequences of the global batch.
  struct Losses {
    Variable cross_entropy;                   // sum over this rank's tokens, nats
    std::vector<Variable> expert, device, z;  // a layer each: sums over this rank's sequences
  };
  Losses forward(Tape& tape, const Batch& batch);

  /// Logits of the last of `tokens` [1, vocab], which follow what the caches hold; one cache a layer, see new_caches().
  Tensor decode(const Stream& stream, std::span<const std::int32_t> tokens, std::vector<KeyValueCache>& caches) const;
  std::vector<KeyValueCache> new_caches(const Stream& stream, std::int64_t capacity) const;

  /// Input, blocks and output: ParameterUnit::layer() of the units are below.
  int layers() const { return static_cast<int>(config_.model.layers) + 2; }
  /// In the order of forward.
  std::span<const std::unique_ptr<ParameterUnit>> units() const { return units_; }

  /// Routing of all forward passes since the last clear, a layer each; passes do not count while it is switched off.
  std::vector<RoutingSums>& routing() { return routing_; }
  void count_routing(bool on) { counting_ = on; }
  void clear_routing();
  /// Placement of the routed experts of each MoE layer, and the index of that layer in the model.
  std::vector<std::pair<std::int64_t, const Placement*>> placements() const;

 private:
  struct Block {
    Parameter* attention_norm;
    AttentionLayer attention;
    Parameter* ffn_norm;
    std::unique_ptr<FeedForward> dense;
    std::unique_ptr<MoeLayer> moe;
    std::size_t routing = 0;  // index in routing_, for moe
  };
  void add_block(std::int64_t layer);
  /// {y, expert loss, device loss, z loss}; undefined where there is none.
  std::vector<Variable> run_block(Tape& tape, const Block& block, const Variable& x, std::int64_t seq_len);
  Variable blocks(Tape& tape, const Tensor& inputs, std::int64_t seq_len, Losses& losses);
  Variable head(Tape& tape, const Variable& x) const;

  ParameterUnit& add_unit(const std::string& name, ParameterUnit::Group group, std::int64_t layer);

  Config config_;
  const Mesh* mesh_;
  DType type_;
  std::vector<std::unique_ptr<ParameterUnit>> units_;
  std::vector<Block> blocks_;
  Parameter* embedding_;
  Parameter* final_norm_;
  Parameter* head_;
  Tensor rope_;
  std::vector<RoutingSums> routing_;
  bool counting_ = true;
};

}  // namespace lyceum
