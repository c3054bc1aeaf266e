#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// The kind of a loss that is added to the model's cross-entropy: of routers, of learnt rates of dropout, or of the
/// head.
enum class LossKind : std::uint8_t {
  expert_balance,
  device_balance,
  z,
  mutual_information,
  concentration,
  sub_dimension,
  router_penalty,
  dropout,     // the regulariser of concrete dropout
  mtp,         // the cross-entropy of a module of multi-token prediction
  head_z,      // the z-loss of the head's logits
  consistency  // the divergence between the predictions for the copies of a sample
};

/// Returns the name of a loss, for example "expert_balance". The key in metrics.jsonl is this name followed by "_loss".
std::string name_of(LossKind kind);

/// True for the losses of routers and of dropout, which are sums over sequences. Losses of the head are sums over
/// tokens.
inline bool is_per_sequence(LossKind kind) {
  return kind != LossKind::mtp && kind != LossKind::head_z && kind != LossKind::consistency;
}

/// True for the losses of routers.
inline bool is_of_routers(LossKind kind) { return is_per_sequence(kind) && kind != LossKind::dropout; }

/// Returns the kinds of losses that a training pass computes in addition to the model's cross-entropy, in the order of
/// LossKind. Losses of routers whose factor is 0 are omitted, but the two balance losses come together; there are none
/// if no layer has a router.
std::vector<LossKind> loss_kinds(const Config& config);

/// Assigns an index to each loss of a step: one for each kind and each layer (block of all_blocks()). LossKind::head_z
/// and LossKind::consistency belong to the last block of the model. All ranks agree on the indices, and losses of one
/// kind are summed in layer order, independently of the division into pipeline stages.
class LossTable {
 public:
  /// `layers`: all_blocks() of the model.
  LossTable(std::vector<LossKind> kinds, std::int64_t layers) : kinds_(std::move(kinds)), layers_(layers) {}
  explicit LossTable(const Config& config) : LossTable(loss_kinds(config), all_blocks(config)) {}

  const std::vector<LossKind>& kinds() const { return kinds_; }
  /// Returns the number of losses of each kind.
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
