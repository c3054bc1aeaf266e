#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// A loss that sub-layers add to cross-entropy.
enum class LossKind : std::uint8_t {
  expert_balance,
  device_balance,
  z,
  mutual_information,
  concentration,
  sub_dimension,
  router_penalty
};

/// Returns the name of a loss; metrics.jsonl has it as NAME_loss.
std::string name_of(LossKind kind);

/// Returns the kinds of losses that the sub-layers of a model give, in any layer; none if nothing routes.
std::vector<LossKind> loss_kinds(const Config& config);

/// The order of a step's losses in a list of numbers: one for each kind and each of `layers` layers of the whole model,
/// so that the sum of a kind has one order whatever the pipeline stages.
class LossTable {
 public:
  LossTable(std::vector<LossKind> kinds, std::int64_t layers) : kinds_(std::move(kinds)), layers_(layers) {}
  explicit LossTable(const Config& config) : LossTable(loss_kinds(config), config.model.layers) {}

  const std::vector<LossKind>& kinds() const { return kinds_; }
  std::int64_t size() const { return std::ssize(kinds_) * layers_; }
  /// The index of a layer's loss. Throws if the model has no loss of this kind.
  std::int64_t index(LossKind kind, std::int64_t layer) const;

 private:
  std::vector<LossKind> kinds_;
  std::int64_t layers_;
};

}  // namespace lyceum
