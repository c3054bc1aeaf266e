#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/optim.h"
#include "optim/frozen_elements.h"
#include "optim/update_rule.h"
#include "parallel/data/norm_sums.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

struct OptimizerOptions {
  /// Keep digests of the memory, with which Optimizer::damage_seen_by_updates() and find_damage() detect changes that
  /// were not made by updates.
  bool watched = false;
  std::uint64_t seed = 0;  // run.seed, for the rounding of states (optim.moments = bf16)
};

/// Updates this rank's shares of parameter units. Owns the master weights and the states of the update rule, and counts
/// updates. All functions are local, except the constructor and update(). optim/checkpoint.h saves and loads the
/// weights and states.
class Optimizer {
 public:
  /// `shares`: the shares of all units of the model, including units that are not trained; the units and the mesh must
  /// outlive the object. Collective over the ranks of a pipeline stage.
  Optimizer(const OptimConfig& config, const Mesh& mesh, Stream stream, std::vector<UnitShare> shares,
            const OptimizerOptions& options = {});

  /// Uploads the learning rate and bias corrections of the next update. Call before update(), and after launching
  /// everything that reads the values of the previous update.
  void prepare(double lr) const { rule_->prepare(lr, updates_ + 1); }
  /// Zeroes the gradients of frozen elements. Call before anything reads the gradients of a step.
  void clear_frozen_gradients() const { frozen_elements_.clear_gradients(stream_, updated_); }
  /// Launches one update, which does nothing to weights, states and averages if `verdict` says to skip it. Writes the
  /// sums of squares of the weights and of the update to columns 0 and 1 of `sums`, see NormSums. Gradients may be
  /// overwritten if the update is not skipped. The host does not wait, except for other ranks with Muon. The launch of
  /// a single rank may be recorded in a graph and repeated with other gradients. `head_factors`: see
  /// UpdateRule::Launch; averages follow the scaled weights. Collective over the ranks of a pipeline stage.
  void update(std::span<const StepVerdict> verdict, const NormSums& norms, const Tensor& sums,
              std::span<const double> head_factors = {}) const;
  /// Returns the bytes that this rank has sent for updates of units of one group; see UpdateRule::traffic().
  ProcessGroup::Traffic traffic(ParameterUnit::Group group) const { return rule_->traffic(group); }
  /// Counts an update. Call if the launched update was not skipped.
  void count_update() { ++updates_; }

  /// Copies the weights to the masters and averages. Call after the weights were initialised.
  void adopt_weights();
  /// Returns the number of updates made so far; part of a checkpoint.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  /// Describes damage that an update has detected so far: the first block of weights or states that changed between two
  /// updates without an update. Empty if there is none or the object is not watched. Waits for the stream.
  std::string damage_seen_by_updates() const;
  /// Compares all weights and states, including frozen units, with their digests now. Describes the first block that
  /// differs, or damage that an update has detected before; empty if there is none or the object is not watched. Reads
  /// all of this memory and waits for the stream.
  std::string find_damage() const;
  /// Does the same for frozen units only. Buffers are not checked, since other code updates them.
  std::string find_frozen_damage() const;
  /// Call after slices of units belong to other logical tensors than before, see PlacedExperts::set_placement().
  void slices_renamed() const { rule_->slices_renamed(); }
  /// Stores new digests of the memory. Call after weights or states were changed by anything but an update.
  void renew_digests();

  const Stream& stream() const { return stream_; }
  /// Returns the shares of the trained units, in the order in which the constructor was given them.
  std::span<const UnitShare> shares() const { return shares_; }
  /// Returns the masters and states of shares(), in the same order. Valid as long as the optimizer; the memory does not
  /// move.
  std::span<const UpdatedShare> updated() const { return updated_; }
  /// Returns the shares of frozen units and buffers.
  std::span<const UnitShare> untrained() const { return untrained_; }
  const FrozenElements& frozen_elements() const { return frozen_elements_; }
  const OptimConfig& config() const { return config_; }

 private:
  std::vector<std::uint64_t> frozen_digests() const;

  OptimConfig config_;
  Stream stream_;
  std::vector<UnitShare> shares_, untrained_;
  std::vector<UpdatedShare> updated_;
  FrozenElements frozen_elements_;
  bool watched_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<std::uint64_t> frozen_digests_;  // digests of untrained_, in its order; 0 for buffers
  std::int64_t updates_ = 0;
};

}  // namespace lyceum
