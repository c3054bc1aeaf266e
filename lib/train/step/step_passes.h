#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "model/staged_model.h"
#include "optim/step_numbers.h"
#include "parallel/data/zero.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/tape_stage.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// The actions of a pipeline's ranks in a step, with sends and receives; checked.
Schedule training_schedule(const Config& config, const Mesh& mesh);

/// Sees results of passes on this rank before any other rank gets them.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  /// `y`: what pipeline stage `stage` is about to send to the next one. Not called for the last stage.
  virtual void on_output(int stage, const Tensor& y) = 0;
  /// The tape made its last contribution to the gradient of a parameter; its sum over copies follows.
  virtual void on_gradient(const Parameter& parameter) = 0;
};

/// The forward and backward passes of a step's micro-batches on this rank. Losses are added to numbers.own(), gradients
/// are summed over micro-batches and copies.
class StepPasses {
 public:
  /// Collective. All references must outlive this; `shares` are of the model's units.
  StepPasses(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero,
             std::span<const UnitShare> shares, const StepNumbers& numbers);
  StepPasses(const StepPasses&) = delete;
  StepPasses& operator=(const StepPasses&) = delete;

  /// Loads the micro-batches of data rank `data_rank` from the samples at [first_sample, first_sample + batch.global).
  /// Collective; returns the number of targets of the global batch that count.
  std::int64_t load(const TokenLoader& loader, std::int64_t first_sample, int data_rank);

  /// Runs all passes, until the shares of this rank hold the sums of all gradients. Returns the actions of this rank's
  /// pipeline with their times in seconds from the begin. `observer` may be null.
  std::vector<TimedAction> run(PassObserver* observer = nullptr);

  /// The group of the first and the last pipeline stage, if they share a table; null otherwise.
  const ProcessGroup* table_holders() const { return ends_ ? &*ends_ : nullptr; }

 private:
  TapeStage::Results forward(Transformer& stage, Tape& tape, const TokenBatch& batch, const Variable& x);
  void add_loss(const Variable& loss, double weight, std::span<double> sum, std::span<const double> times = {}) const;
  int number_of(const Transformer& stage) const;
  void add_shared_table();

  const Config& config_;
  const RunSetup& setup_;
  StagedModel& model_;
  Zero& zero_;
  std::span<const UnitShare> shares_;
  const StepNumbers& numbers_;
  std::vector<std::unique_ptr<TapeStage>> stages_;
  std::optional<PipelineExecutor<TapeStage, ProcessGroup>> executor_;
  std::optional<ProcessGroup> ends_;
  std::vector<TokenBatch> batches_;   // one per micro-batch; without tokens if no stage of this rank reads them
  PassObserver* observer_ = nullptr;  // during run()
};

}  // namespace lyceum
