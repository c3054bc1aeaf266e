#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/config/config.h"
#include "kernels/adamw.h"
#include "parallel/data/norm_sums.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// AdamW over this rank's shares of parameter units: two moments and, where the weights are not kept in accumulator
/// precision, master weights. Units that are not trained are in checkpoints alone; those in bf16 are there as they are
/// rounded to it.
class Optimizer {
 public:
  /// `watched`: damage() finds what changes in memory from one update to the next.
  Optimizer(const OptimConfig& config, Stream stream, std::vector<UnitShare> shares, bool watched = false);

  /// Sends what is known of the next update before its gradients are: to be called before update(), behind whatever
  /// reads the numbers of the last one.
  void prepare(double lr, std::span<AdamWNumbers> numbers) const;
  /// Zeroes the gradients of what is frozen inside of units that are trained, so that neither norms nor moments have
  /// it: before all that reads gradients of a step.
  void leave_out_frozen() const;
  /// Launches the update for `numbers`, which are stored where the model computes, and leaves the squares of weights
  /// and updates in `sums`, columns 0 and 1 of `norms`. Nothing here depends on the step: the host does not wait, and
  /// what is launched may be launched again.
  void update(std::span<const AdamWNumbers> numbers, const NormSums& norms, const Tensor& sums) const;
  /// The update that was launched was not skipped: bias corrections go by their number.
  void count_update() { ++updates_; }
  /// The parameter nearest the loss whose gradient is not finite in this rank's shares, or empty: backward carries NaN
  /// from there on.
  std::string nonfinite_gradient() const;
  /// Likewise the weight.
  std::string nonfinite_weight() const;
  /// What the last update found: where weights or moments of this rank were not what the update before had left, or
  /// empty. Waits for the stream.
  std::string damage() const;
  /// What is damaged now, of all that it holds. Reads it.
  std::string look_for_damage() const;
  /// Likewise of the parameters alone that are not trained: buffers, which rules of their own move, are not looked at.
  std::string look_for_frozen_damage() const;

  /// Of the units that are trained.
  std::span<const UnitShare> shares() const { return shares_; }

  /// Masters from the weights: after they are initialised.
  void adopt_weights();
  /// Updates made so far; part of a checkpoint.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  /// f32 values, and both moments of what is trained, of what this rank owns, twins aside: the ranks' pieces cover the
  /// model once. Views: valid until the next update.
  std::vector<CheckpointPiece> pieces() const;
  /// Fills masters and moments, and the weights of the shares from them. Moments stay zero where the checkpoint has
  /// none, and are zero of what is frozen.
  void load(const CheckpointReader& reader);

 private:
  struct State {
    Tensor master, exp_avg, exp_avg_sq;  // flat, of the updated range
  };
  State make_state(const UnitShare& share) const;
  void make_tables();
  void find_frozen();
  AdamWDigests digests() const;
  void renew_digests();
  void check_digests(bool renew) const;
  std::vector<std::uint64_t> frozen_digests() const;
  std::string nonfinite(std::span<const UnitShare> shares, Tensor UnitShare::*flat) const;

  OptimConfig config_;
  Stream stream_;
  std::vector<UnitShare> shares_, untrained_;
  std::vector<State> states_;  // a share each of those that are trained
  struct FrozenPart {
    std::size_t share;
    Range part;  // of its updated range
  };
  std::vector<FrozenPart> frozen_;
  DType type_ = DType::f32;  // of all shares' values
  Tensor tensors_, runs_;    // tables, see AdamWStep: shares and states stay where they are
  Tensor digests_;           // of blocks, then AdamWDigests::damaged: i32 [blocks + 1]; undefined where nobody looks
  std::vector<std::uint64_t> frozen_digests_;  // of untrained_
  std::int64_t blocks_ = 0;
  std::int64_t updates_ = 0;
};

/// Fills the weights alone, for evaluation and generation.
void load_weights(const CheckpointReader& reader, const Stream& stream, std::span<ParameterUnit* const> units);

}  // namespace lyceum
