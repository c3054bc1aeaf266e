#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "config/optim.h"
#include "kernels/weight_update.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// The memory of an update rule for one unit share: flat tensors over the share's updated range.
struct UpdatedShare {
  UnitShare share;
  Tensor master;               // weights in accumulator precision; share.values itself if it has that type
  std::vector<Tensor> states;  // in the order of UpdateRuleKind::states, in accumulator precision
};

/// A rule for updating weights from gradients, such as AdamW: its state tensors and its step. It works on the unit
/// shares for which it was made.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// Uploads the learning rate and the number n of the next update, counted from 1. Call before launch(), and after
  /// launching everything that reads the numbers of the previous step.
  virtual void prepare(double lr, std::int64_t n) const = 0;

  /// The arguments of launch(). Σ master² and Σ update² of block b of share s are written to sums[weight_offsets[s] +
  /// b] and sums[update_offsets[s] + b], see UpdateWeights.
  struct Launch {
    std::span<const StepVerdict> verdict;                          // [1], in device memory
    std::span<const std::int64_t> weight_offsets, update_offsets;  // [shares], in device memory
    std::span<double> sums;
  };
  /// Launches one update of all shares. The host does not wait. The launch may be recorded in a graph and repeated.
  virtual void launch(const Launch& launch) const = 0;

  /// Stores new digests of all memory that the rule changes (`renew`), or compares the memory with the stored digests.
  /// Each launch also compares, and then stores new digests, unless its verdict skips the update. Has no effect unless
  /// the rule was made with `watched`.
  virtual void check_digests(bool renew) const = 0;

  /// The first block of flat_block elements that was changed by anything but a launch.
  struct Damage {
    std::size_t share;
    std::int64_t block;  // index within the share's updated range
  };
  /// Returns the result of all comparisons since the digests were renewed. Waits for the stream.
  virtual std::optional<Damage> damage() const = 0;
};

/// An update rule as a kind: the properties that do not depend on the weights, and the function that makes an
/// UpdateRule for given shares.
struct UpdateRuleKind {
  /// The names of the state tensors of each weight; in checkpoints they are optimizer/NAME/WEIGHT.
  std::span<const std::string_view> states;
  /// Returns the bytes of device tables that an update needs, for `shares` unit shares with `decay_spans` spans of
  /// weight decay in total.
  std::int64_t (*table_bytes)(std::int64_t shares, std::int64_t decay_spans);
  /// Makes the rule for these shares; their memory and the span itself must outlive it. `watched`: it keeps digests,
  /// see UpdateRule::check_digests().
  std::unique_ptr<UpdateRule> (*make)(const OptimConfig& config, const Stream& stream,
                                      std::span<const UpdatedShare> shares, bool watched);

  /// Returns the bytes of optimizer memory per weight of type `type`: states, and a master unless the weight itself has
  /// accumulator precision.
  std::int64_t state_bytes(DType type) const;
  /// Returns the bytes that an update reads and writes per weight of type `type`: gradient, weight, master and states.
  std::int64_t update_bytes(DType type) const;
};

/// Returns the rule that a configuration selects. New rules are added in its definition.
const UpdateRuleKind& update_rule(const OptimConfig& config);

/// Returns the bytes of the digests of watched shares with a total of `blocks` blocks of flat_block elements.
std::int64_t digest_bytes(std::int64_t blocks);

}  // namespace lyceum
