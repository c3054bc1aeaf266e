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

/// Updates this rank's shares of parameter units: owns the master weights and the state of the update rule, and counts
/// updates. optim/checkpoint.h reads and writes them.
class Optimizer {
 public:
  /// `shares`: of all units of the model, also of units that are not trained. `watched`: keep digests of the memory, so
  /// that find_damage() reports what changed between updates.
  Optimizer(const OptimConfig& config, Stream stream, std::vector<UnitShare> shares, bool watched = false);

  /// Uploads the learning rate and bias corrections of the next update. Call before update(), after everything that
  /// reads those of the last one.
  void prepare(double lr) const { rule_->prepare(lr, updates_ + 1); }
  /// Zeroes the gradients of frozen elements. Call before anything reads the gradients of a step.
  void clear_frozen_gradients() const { frozen_elements_.clear_gradients(stream_, updated_); }
  /// Launches the update that `verdict` allows. Leaves sums of squares of weights and updates in columns 0 and 1 of
  /// `sums`, see NormSums. The host does not wait, and the launch may be repeated with other gradients.
  void update(std::span<const StepVerdict> verdict, const NormSums& norms, const Tensor& sums) const;
  /// Call if the launched update was not skipped.
  void count_update() { ++updates_; }

  /// Copies the weights to the masters. Call after the weights were initialised.
  void adopt_weights();
  /// Updates made so far; part of a checkpoint.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  /// Describes memory of weights or states that updates up to the last one found changed by something else, or returns
  /// an empty text. Waits for the stream.
  std::string damage_seen_by_updates() const;
  /// Describes such a change in any memory as it is now, including frozen units. Reads all of it.
  std::string find_damage() const;
  /// Describes such a change in frozen units. Buffers, which have their own rules, are not checked.
  std::string find_frozen_damage() const;
  /// Stores the digests of the memory as it is now. Call after the weights or states were changed by anything but an
  /// update.
  void renew_digests();

  const Stream& stream() const { return stream_; }
  /// Shares of the trained units.
  std::span<const UnitShare> shares() const { return shares_; }
  /// Masters and states of shares(), in the same order.
  std::span<const UpdatedShare> updated() const { return updated_; }
  /// Shares of frozen units and buffers.
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
  std::vector<std::uint64_t> frozen_digests_;  // of untrained_
  std::int64_t updates_ = 0;
};

}  // namespace lyceum
