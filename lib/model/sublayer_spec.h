#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "model/routing/expert_placements.h"
#include "model/routing/mixture.h"
#include "model/sublayer.h"
#include "model/sublayer_tensor.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The costs of attention that do not follow from its tensors. All zero for an FFN.
struct AttentionCosts {
  /// Elements of the queries of one token; scores over T keys take 2 · T · score_width FLOPs.
  std::int64_t score_width = 0;
  /// Elements of the result of one token; weighted sums over T values take 2 · T · value_width FLOPs.
  std::int64_t value_width = 0;
  std::int64_t window = 0;       // keys that a query sees at most, and positions of a KeyValueCache; 0: all
  std::int64_t cache_width = 0;  // elements of a KeyValueCache per position
  /// True if each tensor rank caches its share of the heads; false if each has the whole cache.
  bool cache_is_cut = true;
  std::int64_t position_width = 0;  // columns of the table of rotary positions; 0 if attention has none
  /// Parameters of the matrices whose products backward computes again with model.recompute = selective.
  std::int64_t repeated_parameters = 0;
};

/// The ranks, units, measured loads and memory with which a sub-layer is constructed.
struct SublayerContext {
  const Mesh& mesh;
  SublayerUnits units;
  std::span<const ExpertLoad> measured;  // loads of the experts, see Transformer()
  Stream stream;
  DType type;  // of the weights
  bool train;  // see Transformer()
};

/// The declaration of half of a block: data that exists before any memory is taken. Other code derives from it the
/// parameters and FLOPs (counts.h), the memory that the planner does not rehearse, the names for the converter, and the
/// sub-layer of Transformer. Each kind of half has a function that returns its spec; attention_spec() and ffn_spec()
/// select the kind.
struct SublayerSpec {
  using Make = std::unique_ptr<Sublayer> (*)(const Config& config, const SublayerSpec& spec,
                                             const SublayerContext& context);

  MixtureId id;                         // layer and half
  std::vector<SublayerTensor> tensors;  // in checkpoint order, the tensors of the router first
  AttentionCosts costs = {};
  std::optional<Mixture> mixture = {};  // description of the choices of its router; none without one
  Make make;
  std::string block = {};  // block_prefix() of its block

  /// Returns the prefix of its tensor names, without a slash at the end.
  std::string prefix() const { return half_prefix(block, id.site); }
  /// True if any of its tensors is held by a unit of this kind.
  bool has(TensorUnit unit) const;
};

/// Return the declarations of the two halves of block `layer`, one of all_blocks(), of a resolved configuration.
SublayerSpec attention_spec(const Config& config, std::int64_t layer);
SublayerSpec ffn_spec(const Config& config, std::int64_t layer);

/// The declarations of the norms in front of the two halves of every block. In a checkpoint, block_prefix() and a slash
/// precede each name.
struct BlockNorms {
  SublayerTensor attention, ffn;
};
BlockNorms block_norms(const ModelConfig& model);

/// Returns the shape of the table of rotary positions that all blocks share: [batch.seq_len, columns], in accumulator
/// type. It is empty if attention has no rotary positions.
Shape position_table_shape(const Config& config);

}  // namespace lyceum
