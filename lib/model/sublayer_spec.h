#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/routing/expert_places.h"
#include "model/routing/mixture.h"
#include "model/sublayer.h"
#include "model/sublayer_tensor.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The costs of attention that do not follow from its tensors. All zero for an FFN.
struct AttentionCosts {
  std::int64_t score_width = 0;  // elements of a token's queries: its scores of T keys take 2 · T · score_width FLOPs
  std::int64_t value_width = 0;  // elements of a token's result: its sums over T values take 2 · T · value_width
  std::int64_t cache_width = 0;  // elements that a KeyValueCache has for each position
  bool cache_is_cut = true;      // the ranks of a tensor group share out the cache; else each has all of it
  std::int64_t position_width = 0;  // columns of the table of rotary positions; 0: it has no positions
};

/// The ranks and units that a sub-layer is made for.
struct SublayerPlace {
  const Mesh& mesh;
  SublayerUnits units;
  std::span<const ExpertLoad> measured;  // as in Transformer
};

/// The declaration of half of a block. Parameters and FLOPs (counts.h), the memory that the planner does not
/// rehearse, the converter and Transformer follow from it. Each kind of half has a function that returns its spec;
/// attention_spec() and ffn_spec() select the kind.
struct SublayerSpec {
  using Make = std::unique_ptr<Sublayer> (*)(const Config& config, const SublayerSpec& spec,
                                             const SublayerPlace& place);

  MixtureId id;                         // layer and half
  std::vector<SublayerTensor> tensors;  // those of the router first
  AttentionCosts costs = {};
  std::optional<Mixture> mixture = {};  // what its router chooses from
  Make make;

  std::string prefix() const { return sublayer_prefix(id); }
  /// True if it has tensors in such a unit.
  bool has(TensorUnit unit) const;
};

/// The halves of block `layer` of a resolved configuration.
SublayerSpec attention_spec(const Config& config, std::int64_t layer);
SublayerSpec ffn_spec(const Config& config, std::int64_t layer);

/// Returns the norms in front of the two halves of every block. Their names follow block_prefix() and a slash.
struct BlockNorms {
  SublayerTensor attention, ffn;
};
BlockNorms block_norms(const ModelConfig& model);

/// Shape of the table of rotary positions that all blocks share, [batch.seq_len, columns] in accumulator type; empty if
/// attention has no positions.
Shape position_table(const Config& config);

}  // namespace lyceum
