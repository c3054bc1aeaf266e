#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "io/config.h"
#include "io/token_data.h"
#include "model/transformer.h"
#include "parallel/data/zero.h"
#include "train/optimizer.h"
#include "train/run_setup.h"

namespace lyceum {

/// What one step did, the same on every rank.
struct StepResult {
  double loss = 0;                                      // cross-entropy, nats per token of the global batch
  double expert_loss = 0, device_loss = 0, z_loss = 0;  // weighted, summed over layers, mean over sequences
  double grad_norm = 0;                                 // before clipping
  double lr = 0;
  double load_imbalance = 0;         // busiest expert's tokens over the mean, worst layer; 0 without experts
  bool skipped = false;              // something was not finite: no update was made
  std::string culprit;               // then: what is not finite on this rank, or empty
  std::vector<RoutingSums> routing;  // of this step, over all ranks
};

/// Micro-batches that a rank runs in a step.
std::int64_t micro_batches(const Config& config, const Mesh& mesh);
/// How `config` wants the memory of its model's units to be held on this mesh.
Zero::Options zero_options(const Config& config, const Mesh& mesh);

/// One optimizer step over the mesh: micro-batches forward and backward, gradients reduced while backward goes on,
/// norm, clipping, AdamW. A step whose loss or gradient norm is not finite is left out on all ranks alike.
class TrainStep {
 public:
  /// `zero` and `optimizer` are of the model's units.
  TrainStep(const Config& config, const RunSetup& setup, Transformer& model, Zero& zero, Optimizer& optimizer);
  /// Reads the samples at positions [first_sample, first_sample + batch.global).
  StepResult run(const TokenLoader& loader, std::int64_t first_sample, double lr);

 private:
  void micro_batch(const TokenLoader& loader, std::int64_t index);
  void reduce_losses(StepResult& result);
  void reduce_routing(StepResult& result);

  const Config& config_;
  const RunSetup& setup_;
  Transformer& model_;
  Zero& zero_;
  Optimizer& optimizer_;
  std::array<double, 4> losses_{};  // cross-entropy, expert, device, z: this rank's weighted sums
};

}  // namespace lyceum
