#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/optim.h"
#include "kernels/weight_update.h"
#include "optim/weight_rule.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// The memory of an update rule for one unit share: flat tensors over the share's updated range. The states have the
/// type state_type(), all other tensors accumulator precision.
struct UpdatedShare {
  UnitShare share;
  Tensor master;  // weights; share.values itself if it has accumulator precision
  /// states[s] has one element for each element of the updated range whose rule keeps more than s states, in order.
  std::vector<Tensor> states;
  /// The updated range, divided into parts of one rule each, in order. part.states[s], [part.range.count], is a view of
  /// the part's elements in states[s]; it is the state states_of(part.rule)[s].
  struct Part {
    Range range;  // of the unit
    WeightRule rule;
    std::vector<Tensor> states;
  };
  std::vector<Part> parts;
  Tensor average = {};  // optim.ema: moving average of the weights; undefined without
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
    std::span<const double> head_factors;  // see QkClipFactors, in device memory; empty unless optim.qk_clip is set
  };
  /// Launches one update of all shares. The host does not wait, except for other ranks with Muon. The launch of a
  /// single rank may be recorded in a graph and repeated. Gradients may be overwritten if the update is not skipped.
  virtual void launch(const Launch& launch) const = 0;

  /// Stores new digests of all memory that the rule changes (`renew`), or compares the memory with the stored digests.
  /// Each launch also compares, and then stores new digests, unless its verdict skips the update. Has no effect unless
  /// the rule was made with `watched`.
  virtual void check_digests(bool renew) const = 0;

  /// Call after slices of the units belong to other logical tensors than before: the numbers that round states
  /// (optim.moments = bf16) depend on the tensor.
  virtual void slices_renamed() const = 0;

  /// The first block of flat_block elements that was changed by anything but a launch.
  struct Damage {
    std::size_t share;
    std::int64_t block;  // index within the share's updated range
  };
  /// Returns the result of all comparisons since the digests were renewed. Waits for the stream.
  virtual std::optional<Damage> damage() const = 0;

  /// Returns the bytes that this rank has sent for updates, by group of parameters; none for a rule that works on each
  /// element by itself.
  virtual ProcessGroup::Traffic traffic(ParameterUnit::Group) const { return {}; }
};

/// The arguments with which an UpdateRule is made. The shares' memory must outlive it, and must not move.
struct UpdateRuleInput {
  const OptimConfig& config;
  const Mesh& mesh;
  const Stream& stream;
  std::span<const UpdatedShare> shares;
  bool watched;        // keep digests, see UpdateRule::check_digests()
  std::uint64_t seed;  // of the numbers that round states, see StateRounding
};

/// Makes the update of all weights that a configuration selects: AdamW, or Muon for some weights and AdamW for the
/// others. New rules are added in its definition. Collective over the ranks of a pipeline stage with optim.rule = muon.
std::unique_ptr<UpdateRule> make_update_rule(const UpdateRuleInput& input);

/// Returns the bytes of device tables that an update needs, for `shares` unit shares with `spans` update ranges (see
/// update_ranges()) and, with optim.moments = bf16, `slices` slices (see rounded_slices()) in total. Does not include
/// the tables of Muon's exchange.
std::int64_t update_table_bytes(std::int64_t shares, std::int64_t spans, std::int64_t slices);

/// Returns the bytes of the digests of watched shares with a total of `blocks` blocks of flat_block elements.
std::int64_t digest_bytes(std::int64_t blocks);

}  // namespace lyceum
