#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// The kind of a loss that is added to cross-entropy. All but head_z belong to a router of a layer.
enum class LossKind : std::uint8_t {
  expert_balance,
  device_balance,
  z,
  mutual_information,
  concentration,
  sub_dimension,
  router_penalty,
  head_z  // the z-loss of the head's logits
};

/// Returns the name of a loss, for example "expert_balance". The key in metrics.jsonl is this name followed by "_loss".
std::string name_of(LossKind kind);

/// Returns the kinds of losses that a model has in training, in the order of LossKind. Losses whose factor is 0 are
/// omitted, but the two balance losses come together. Those of routers are omitted if no layer has one.
std::vector<LossKind> loss_kinds(const Config& config);

/// Assigns an index to each loss of a step: one for each kind and each layer of the whole model, with the head in the
/// last layer. All ranks agree on the indices, and losses of one kind are summed in layer order, independently of the
/// division into pipeline stages.
class LossTable {
 public:
  /// `layers`: number of layers of the whole model.
  LossTable(std::vector<LossKind> kinds, std::int64_t layers) : kinds_(std::move(kinds)), layers_(layers) {}
  explicit LossTable(const Config& config) : LossTable(loss_kinds(config), config.model.layers) {}

  const std::vector<LossKind>& kinds() const { return kinds_; }
  /// Returns the number of layers of the whole model.
  std::int64_t layers() const { return layers_; }
  /// Returns the number of losses.
  std::int64_t size() const { return std::ssize(kinds_) * layers_; }
  /// Returns the index of a layer's loss. Throws an Error if the model has no loss of this kind or no such layer.
  std::int64_t index(LossKind kind, std::int64_t layer) const;

 private:
  std::vector<LossKind> kinds_;
  std::int64_t layers_;
};

}  // namespace lyceum
