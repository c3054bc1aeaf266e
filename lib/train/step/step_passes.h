#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "model/attention/logits.h"
#include "model/layer_sums.h"
#include "model/routing/running_loads.h"
#include "model/routing/step_replicas.h"
#include "model/staged_model.h"
#include "optim/step_numbers.h"
#include "parallel/data/zero.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/tape_stage.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Returns the actions of all pipeline ranks in a step, with sends and receives. The schedule has passed
/// check_schedule().
Schedule training_schedule(const Config& config, const Mesh& mesh);

/// Receives the results of passes on this rank before they are sent to other ranks.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  /// Called when pipeline stage `stage` has computed its output `y`, which is sent to the next stage. Not called for
  /// the last stage.
  virtual void on_output(int stage, const Tensor& y) = 0;
  /// Called when this rank has made its last contribution to the gradient of a parameter, before the sum over copies.
  virtual void on_gradient(const Parameter& parameter) = 0;
};

/// The forward and backward passes of a step's micro-batches on this rank. Call load(), then run(). Losses are added to
/// numbers.own(). Gradients are summed over micro-batches and copies.
class StepPasses {
 public:
  /// Collective. `shares`: those of the model's trained units. All references must outlive this.
  StepPasses(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero,
             std::span<const UnitShare> shares, const StepNumbers& numbers);
  StepPasses(const StepPasses&) = delete;
  StepPasses& operator=(const StepPasses&) = delete;

  /// Collective. Loads the micro-batches of data rank `data_rank` from the samples at positions [first_sample,
  /// first_sample + samples_per_step()). Returns the number of targets of the global batch that count.
  std::int64_t load(const TokenLoader& loader, std::int64_t first_sample, int data_rank);

  /// Switches the measurement of layers in run() on or off. It is off at first, when it takes no memory. While it is
  /// on, runs must not be recorded.
  void measure_layers(bool on);
  /// Sets the attention logits that run() measures; null: none, as at first. They must outlive the runs.
  void set_attention_logits(const AttentionLogits* logits);
  /// Collective over the world. Returns the measurements of the last run() over the tokens of all ranks, [blocks + 1]:
  /// for each block, the root of the mean over tokens of the squared norm of its output; then the largest logit of the
  /// head, ignoring NaNs. Waits for the device.
  std::vector<double> measured_layers() const;

  /// Collective. Runs all passes of the loaded micro-batches. Afterwards the shares of this rank hold the sums of all
  /// gradients. Returns the actions of this rank's pipeline with their times. `observer` may be null.
  std::vector<TimedAction> run(PassObserver* observer = nullptr);

  /// Returns how the last run() used replicas of experts on this rank.
  ReplicaUse replicas() const { return replicas_ ? replicas_->use() : ReplicaUse{}; }
  /// Returns the same for the routing log, with transfers of weights; empty without parallel.replicas.
  std::vector<ReplicaSums> replica_sums() const;

  /// Returns the group of the first and the last pipeline rank if they share the embedding table (shares_table()), or
  /// else null. On the pipeline ranks between them it returns a group of those ranks, which hold no table.
  const ProcessGroup* table_holders() const { return pipeline_ends_ ? &*pipeline_ends_ : nullptr; }

 private:
  TapeStage::Results forward(Transformer& stage, Tape& tape, const TokenBatch& batch, const Variable& x);
  Tensor target_weight(const Variable& loss, double factor) const;
  void add_loss(const Variable& loss, double weight, std::span<double> sum, std::span<const double> times = {}) const;
  int stage_index(const Transformer& stage) const;
  void sum_shared_table_gradients();

  const Config& config_;
  const RunSetup& setup_;
  StagedModel& model_;
  Zero& zero_;
  std::span<const UnitShare> shares_;
  const StepNumbers& numbers_;
  std::vector<std::unique_ptr<TapeStage>> stages_;
  std::optional<PipelineExecutor<TapeStage, ProcessGroup>> executor_;
  std::optional<ProcessGroup> pipeline_ends_;  // see table_holders()
  std::optional<LayerSums> layer_sums_;        // while layers are measured
  const AttentionLogits* attention_logits_ = nullptr;
  std::optional<RunningLoads> running_loads_;  // with balance.scope = global
  std::optional<StepReplicas> replicas_;       // with parallel.replicas
  std::vector<TokenBatch> batches_;   // one per micro-batch; without tokens if no stage of this rank reads them
  PassObserver* observer_ = nullptr;  // set during run()
};

}  // namespace lyceum
