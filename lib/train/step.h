#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/recorded_work.h"
#include "io/config/config.h"
#include "io/data/token_loader.h"
#include "model/staged_model.h"
#include "parallel/data/norm_sums.h"
#include "parallel/data/zero.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/tape_stage.h"
#include "train/audit.h"
#include "train/finding.h"
#include "train/optimizer.h"
#include "train/run_setup.h"
#include "train/samples.h"
#include "train/step_numbers.h"

namespace lyceum {

/// What one step did. The same on every rank, but for what is said to be of this rank: whatever is decided by these
/// numbers (a skipped step, a run that diverged) is decided alike everywhere.
struct StepResult {
  /// Of sub-layers: weighted, summed over layers, mean over sequences.
  struct NamedLoss {
    std::string name;
    double value;
    bool operator==(const NamedLoss&) const = default;
  };
  double loss = 0;                  // cross-entropy, nats per target of the global batch that counts
  std::int64_t targets = 0;         // that count
  std::vector<NamedLoss> losses{};  // all that the model has, see loss_names()
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

/// Whether something that is done every so many steps, or never where `every` is 0, is due after `steps` of them.
bool due(std::int64_t steps, std::int64_t every);

/// How `config` wants the memory of its model's units to be held on this mesh.
Zero::Options zero_options(const Config& config, const Mesh& mesh);
/// What the ranks of a pipeline do in a step, with sends and receives; checked.
Schedule training_schedule(const Config& config, const Mesh& mesh);

/// One optimizer step over the mesh: micro-batches through the pipeline, gradients reduced during backward,
/// norm, clipping, AdamW. A step whose loss or gradient norm is not finite, or of whose batch no target counts, is left
/// out on all ranks alike. By
/// run.audit_every and run.replay_every memory, copies and arithmetic are watched: what is not as it should be is an
/// Error that names rank and parameter.
class TrainStep {
 public:
  /// Collective. `zero` and `optimizer` are of the model's units.
  TrainStep(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero, Optimizer& optimizer);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  /// Reads the samples at positions [first_sample, first_sample + batch.global). `step`: steps before this one.
  StepResult run(const TokenLoader& loader, std::int64_t step, std::int64_t first_sample, double lr);
  /// Collective, after `steps` steps: throws where what this rank holds is not what updates made of it, or copies
  /// differ. Before it is saved.
  void audit(std::int64_t steps) const;
  /// Throws where what this rank holds is not what updates made of it.
  void require_undamaged() const;
  /// Lets others use the memory that a recorded step keeps between steps.
  void release_memory() { recorded_.forget(); }
  /// What this rank has handed over to add up a table that its pipeline's first and last stage share.
  ProcessGroup::Traffic shared_table_traffic() const { return ends_ ? ends_->traffic() : ProcessGroup::Traffic{}; }

 private:
  TapeStage::Results forward(Transformer& stage, Tape& tape, const Transformer::Batch& batch, const Variable& x);
  std::int64_t load_batches(const TokenLoader& loader, std::int64_t first_sample, int data_rank);
  std::vector<TimedAction> passes();
  int data_ranks_to_copy() const;
  GradientDigests digests_of_passes(std::vector<TimedAction>& trace);
  std::vector<TimedAction> replayed_passes(const TokenLoader& loader, std::int64_t step, std::int64_t first_sample);
  void compare_copies(std::int64_t step) const;
  void require_undamaged(const std::string& damage) const;
  void add_shared_table();
  void agree_on_numbers();
  void launch_update();
  StepNumbers::Values read(StepResult& result) const;
  void look_at_output(const Transformer& stage, const Tensor& y);
  void look_at_gradient(const Parameter& parameter);
  void digest_sums();
  Finding nonfinite_share() const;
  Finding own_nonfinite(const StepNumbers::Values& values) const;
  std::string find_culprit(const StepNumbers::Values& values);

  const Config& config_;
  const RunSetup& setup_;
  StagedModel& model_;
  Zero& zero_;
  Optimizer& optimizer_;
  std::vector<std::unique_ptr<TapeStage>> stages_;
  std::optional<PipelineExecutor<TapeStage, ProcessGroup>> executor_;
  std::optional<ProcessGroup> ends_;         // first and last stage, where they share a table
  std::vector<Transformer::Batch> batches_;  // a micro-batch each; without tokens where no stage looks at them
  std::vector<std::string> losses_;          // names, in the order of numbers_
  StepNumbers numbers_;
  GradientNorm gradient_norm_;
  NormSums weight_norms_;
  RecordedWork recorded_;               // all launches of a step, where no other rank takes part
  bool computed_ = false;               // a step, since the start
  Finding* seen_ = nullptr;             // while passes look for what is not finite: what they found
  GradientDigests* digests_ = nullptr;  // while a step is computed again: what it makes
};

}  // namespace lyceum
