#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "config/optim.h"
#include "kernels/weight_update.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// Returns the names of the state tensors that the configuration's update rule keeps for each weight: in checkpoints
/// they are optimizer/STATE/NAME.
std::span<const std::string_view> state_names(const OptimConfig& config);

/// Returns the bytes of optimizer memory for one weight of type `type`: states, and a master unless the weight itself
/// has accumulator precision.
std::int64_t state_bytes(const OptimConfig& config, DType type);

/// Returns the bytes that an update reads and writes for one weight of type `type`: gradient, weight, master and
/// states.
std::int64_t update_bytes(const OptimConfig& config, DType type);

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

}  // namespace lyceum
