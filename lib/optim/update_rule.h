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

/// The memory that an update rule has for one unit share; flat tensors over the share's updated range.
struct UpdatedShare {
  UnitShare share;
  Tensor master;               // weights in accumulator precision; share.values if those have this type already
  std::vector<Tensor> states;  // in the order of state_names(), in accumulator precision
};

/// A rule by which gradients change weights, such as AdamW: the tensors that it keeps for each weight, and its step.
/// It works on the unit shares that it was made for.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// Uploads the learning rate and the number n of this update, from 1 on.
  /// Call before launch(), after everything that reads the numbers of the last step.
  virtual void prepare(double lr, std::int64_t n) const = 0;

  /// Launches the step. Writes Σ master² and Σ update² of the blocks of share s to places weight_places[s] and
  /// update_places[s] of `sums`, see UpdateWeights. The launch may be repeated; the host does not wait.
  struct Launch {
    std::span<const StepVerdict> verdict;                        // [1], in device memory
    std::span<const std::int64_t> weight_places, update_places;  // [shares], in device memory
    std::span<double> sums;
  };
  virtual void launch(const Launch& launch) const = 0;

  /// Stores digests of all memory that the rule changes (`renew`), or compares the stored ones with it. Each launch
  /// compares, too, and stores those of what it leaves. Does nothing unless the rule was made to watch its memory.
  virtual void check_digests(bool renew) const = 0;

  /// The first block of flat_block elements that a comparison found changed by something else than a launch.
  struct Damage {
    std::size_t share;
    std::int64_t block;  // of the share's updated range
  };
  /// Returns what comparisons have found since the digests were renewed. Waits for the stream.
  virtual std::optional<Damage> damage() const = 0;
};

/// What is known of a rule without its memory, and how it is made.
struct UpdateRuleKind {
  /// The state tensors of each weight; in checkpoints they are optimizer/STATE/NAME.
  std::span<const std::string_view> states;
  /// Bytes of what an update needs in device memory besides weights, gradients and states: its tables, for `shares`
  /// unit shares with `decay_spans` runs of weight decay between them.
  std::int64_t (*table_bytes)(std::int64_t shares, std::int64_t decay_spans);
  /// Makes the rule for these shares, whose memory (and the span itself) must outlive it. `watched`: it keeps digests,
  /// see UpdateRule::check_digests().
  std::unique_ptr<UpdateRule> (*make)(const OptimConfig& config, const Stream& stream,
                                      std::span<const UpdatedShare> shares, bool watched);

  /// Bytes of optimizer memory for one weight of type `type`: states, and a master unless the weight itself has
  /// accumulator precision.
  std::int64_t state_bytes(DType type) const;
  /// Bytes that an update reads and writes for one weight of type `type`: gradient, weight, master and states.
  std::int64_t update_bytes(DType type) const;
};

/// The rule of a configuration. This is where a new rule is added.
const UpdateRuleKind& update_rule(const OptimConfig& config);

/// Bytes of the digests of watched shares of `blocks` blocks of flat_block elements.
std::int64_t digest_bytes(std::int64_t blocks);

}  // namespace lyceum
