#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/allocator.h"
#include "core/recorded_work.h"
#include "io/data/loader/token_loader.h"
#include "model/attention/logits.h"
#include "model/routing/rank_imbalance.h"
#include "model/routing/step_replicas.h"
#include "model/staged_model.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "optim/step_end.h"
#include "optim/step_numbers.h"
#include "parallel/data/zero.h"
#include "train/setup/run_setup.h"
#include "train/step/step_passes.h"

namespace lyceum {

/// Measurements of the layers of a model in one step. Layers are those of ParameterUnit::layer(): the embedding, the
/// blocks, and last the final norm with the head and the modules of multi-token prediction.
struct LayerMetrics {
  std::vector<double> weight_norms, gradient_norms;  // [blocks + 2]: of trained weights after the update; see grad_norm
  /// [blocks]: root of the mean, over the tokens of the batch, of the squared norm of the block's output
  std::vector<double> activation_norms;
  double largest_logit = 0;  // of the head, over all words and all tokens of the batch
  /// [blocks]: largest scaled attention logit of the block, over all heads and tokens of the batch; empty if the model
  /// has none, see AttentionLogits::exist()
  std::vector<double> attention_logits = {};
};

/// The results of one training step. They are equal on every rank, except for `routing`, `trace` and `memory`. So all
/// ranks make the same decisions from them, for example to skip a step.
struct StepResult {
  /// A loss beside that of the model, for example expert_balance: weighted and summed over layers. Losses of routers
  /// are means over the sequences of the batch, those of the head over its targets.
  struct LayerLoss {
    LossKind kind;
    double value;
    bool operator==(const LayerLoss&) const = default;
  };
  double loss = 0;                  // mean cross-entropy of the global batch, nats per target that counts
  std::int64_t targets = 0;         // targets of the global batch that count
  std::vector<LayerLoss> losses{};  // one per kind, see loss_kinds()
  double grad_norm = 0;             // before clipping
  double weight_norm = 0;           // norm of all f32 weights after the update
  double update_norm = 0;           // norm of the difference between the weights before and after the update
  double lr = 0;
  double load_imbalance = 0;  // tokens of the busiest expert over the mean, in the worst layer; 0 without experts
  /// Imbalance of the expert ranks by `loads` and `replicas`, if there are several. The trainer sets it on rank 0.
  std::optional<RankImbalance> rank_imbalance{};
  /// `rank_imbalance` as if experts had no replicas; only with parallel.replicas.
  std::optional<RankImbalance> rank_imbalance_without_replicas{};
  bool skipped = false;  // no update: loss or gradient norm was not finite or above its limit, or no target counts
  bool outlier = false;  // skipped since loss or gradient norm was above its limit
  std::string culprit;   // "the gradient of … on ranks …" if a number was not finite, else empty
  std::optional<LayerMetrics> layers;  // after every run.layer_metrics_every steps
  /// Tokens of each expert in this step, summed over all ranks: loads_of() the routing of each mixture of the model.
  std::vector<RoutingSums> loads;
  /// Routing of this rank's tokens in this step, one per mixture of this rank. sum_routing_over_ranks() gives that of
  /// the model, also for sums over several steps.
  std::vector<RoutingSums> routing;
  /// The actions of this rank's pipeline with their times in the step. Empty if a recorded step was replayed as one
  /// launch.
  std::vector<TimedAction> trace;
  ReplicaUse replicas;  // of all ranks, with parallel.replicas
  /// The use of replicas on this rank. sum_replica_counts_over_ranks() gives that of the model, also for sums over
  /// steps.
  std::vector<ReplicaSums> replica_sums;
  MemoryUse memory;  // memory of this rank, after the step; peaks since the last reset_peaks()
};

/// True if something that is done every `every` steps is due after `steps` steps; never if `every` is 0.
bool is_due(std::int64_t steps, std::int64_t every);

/// Returns the options of Zero for a training run of this configuration on this mesh.
Zero::Options zero_options(const Config& config, const Mesh& mesh);
/// Executes training steps:
///   1. forward and backward passes of all micro-batches through the pipeline, with gradients reduced during backward,
///   2. the norm of the gradients, clipping and the update of the weights.
/// All ranks skip the update if the loss or the gradient norm is not finite or above its limit, or if no target of the
/// batch counts. If run.audit_every or run.replay_every is set, some steps also check memory, copies or arithmetic
/// (docs/cluster.md).
class TrainStep {
 public:
  /// Collective. `zero` and `optimizer` must hold the units of `model`. All references must outlive this.
  TrainStep(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero, Optimizer& optimizer);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  /// Collective over the world. Makes one step with the samples at positions [first_sample, first_sample +
  /// samples_per_step()) of the loader. `step`: number of steps before this one. `lr`: learning rate. `limits`: loss
  /// and gradient norm above which the step makes no update; equal on all ranks. Throws an Error that names what is
  /// damaged or differs if a check finds a fault.
  StepResult run(const TokenLoader& loader, std::int64_t step, std::int64_t first_sample, double lr,
                 const StepLimits& limits = {});
  /// Collective over the world. Checks the memory of all ranks after `steps` steps, before a checkpoint is saved.
  /// Throws as require_undamaged() does, and if ranks hold different copies of a unit. Does nothing if run.audit_every
  /// is 0.
  void audit(std::int64_t steps) const;
  /// Local. Throws an Error if weights or optimizer states of this rank have changed in memory since the last update.
  /// Reads all of them. Does nothing if run.audit_every is 0.
  void require_undamaged() const { require_undamaged(optimizer_.find_damage()); }
  /// Frees the memory that a recorded step keeps between steps. The next step is recorded again.
  void release_memory() { recorded_.forget(); }
  /// Returns the traffic of this rank for the gradient sums of an embedding table that the first and the last pipeline
  /// stage share.
  ProcessGroup::Traffic shared_table_traffic() const;

 private:
  void update();
  StepNumbers::Values read(StepResult& result) const;
  void measure_layers(bool on);
  LayerMetrics layer_metrics(const StepNumbers::Values& values) const;
  void compare_copies(std::int64_t step) const;
  void require_undamaged(const std::string& damage) const;

  const Config& config_;
  const RunSetup& setup_;
  StagedModel& model_;
  Zero& zero_;
  Optimizer& optimizer_;
  StepNumbers numbers_;
  std::optional<AttentionLogits> attention_logits_;  // with QK-clip, or while layers are measured
  std::optional<QkClip> qk_clip_;                    // with optim.qk_clip
  StepPasses passes_;
  StepEnd end_;
  RecordedWork recorded_;  // all launches of a step; used only if the world has one rank
  bool computed_ = false;  // this process has made a step
};

}  // namespace lyceum
