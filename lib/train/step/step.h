#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/allocator.h"
#include "core/recorded_work.h"
#include "io/data/loader/token_loader.h"
#include "model/staged_model.h"
#include "optim/optimizer.h"
#include "optim/step_end.h"
#include "optim/step_numbers.h"
#include "parallel/data/zero.h"
#include "train/setup/run_setup.h"
#include "train/step/step_passes.h"

namespace lyceum {

/// What one step did. The same on every rank, but for what is said to be of this rank: whatever is decided by these
/// numbers (a skipped step, a run that diverged) is decided alike everywhere.
struct StepResult {
  /// A loss of sub-layers: weighted, summed over layers, mean over sequences.
  struct LayerLoss {
    LossKind kind;
    double value;
    bool operator==(const LayerLoss&) const = default;
  };
  double loss = 0;                  // cross-entropy, nats per target of the global batch that counts
  std::int64_t targets = 0;         // that count
  std::vector<LayerLoss> losses{};  // one per kind, see loss_kinds()
  double grad_norm = 0;             // before clipping
  double weight_norm = 0;           // of all f32 weights, after the update
  double update_norm = 0;           // of what the update took from them
  double lr = 0;
  double load_imbalance = 0;         // busiest expert's tokens over the mean, worst layer; 0 without experts
  bool skipped = false;              // no update was made: something was not finite, or no target counts
  std::string culprit;               // then: what is not finite on which ranks, or empty
  std::vector<RoutingSums> routing;  // of this step, every mixture, over all ranks
  /// Of this rank: what its pipeline did and when, in seconds from the step's begin. Empty where the step was one
  /// launch.
  std::vector<TimedAction> trace;
  MemoryUse memory;  // of this rank, after the step; peaks since they were last reset
};

/// True every `every` steps, after `steps` of them; never if `every` is 0.
bool is_due(std::int64_t steps, std::int64_t every);

/// How the memory of a model's units is held on this mesh.
Zero::Options zero_options(const Config& config, const Mesh& mesh);
/// One optimizer step over the mesh: micro-batches through the pipeline, gradients reduced during backward, norm,
/// clipping, update. A step is skipped on all ranks if its loss or gradient norm is not finite, or if no target of its
/// batch counts. As run.audit_every and run.replay_every say, memory, copies and arithmetic are checked: a difference
/// is an Error that names rank and parameter.
class TrainStep {
 public:
  /// Collective. `zero` and `optimizer` are of the model's units.
  TrainStep(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero, Optimizer& optimizer);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  /// Reads the samples at positions [first_sample, first_sample + batch.global). `step`: steps before this one.
  StepResult run(const TokenLoader& loader, std::int64_t step, std::int64_t first_sample, double lr);
  /// Collective, after `steps` steps, before they are saved: throws if weights or states of this rank are not what
  /// updates made of them, or if copies differ.
  void audit(std::int64_t steps) const;
  /// Throws if weights or states of this rank are not what updates made of them.
  void require_undamaged() const { require_undamaged(optimizer_.find_damage()); }
  /// Frees the memory that a recorded step keeps between steps.
  void release_memory() { recorded_.forget(); }
  /// Traffic of this rank for the sums of a table that the pipeline's first and last stage share.
  ProcessGroup::Traffic shared_table_traffic() const;

 private:
  void update();
  StepNumbers::Values read(StepResult& result) const;
  void compare_copies(std::int64_t step) const;
  void require_undamaged(const std::string& damage) const;

  const Config& config_;
  const RunSetup& setup_;
  StagedModel& model_;
  Zero& zero_;
  Optimizer& optimizer_;
  StepNumbers numbers_;
  StepPasses passes_;
  StepEnd end_;
  RecordedWork recorded_;  // all launches of a step, if no other rank takes part
  bool computed_ = false;  // a step, since the start
};

}  // namespace lyceum
