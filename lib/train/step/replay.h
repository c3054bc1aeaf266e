#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/setup/run_setup.h"
#include "train/step/step_passes.h"

namespace lyceum {

/// Detects faults of processors, memory and messages by computing a step several times. A step has the same bits
/// whenever and wherever it is computed, so any difference is a fault.
///   1. Runs the passes of the step.
///   2. Runs them with the tokens of another data rank that has copies of the same parameters.
///   3. Runs the passes of the step again. Their gradients must be those of 1.
///   4. The gradients of 2 must be those that the other rank computed in 3.
/// 2 and 4 are omitted if there is no such rank, or if ranks may compute different bits: in the first step, if not all
/// ranks of the world have the same processor and number of threads, or if balance.scope is not `sequence`.
struct Replay {
  const Config& config;
  const RunSetup& setup;
  std::span<const UnitShare> shares;  // shares of the trained units
  int layers;                         // number of layers, see StepEnd
  /// True for the first step of the process, in which ranks may have chosen different GEMM algorithms by timing them.
  bool first_step;
  /// Collective over the world. Computes the step at the samples [first_sample, first_sample + samples_per_step()), and
  /// leaves the gradients of the last passes in the shares. Returns the trace of these passes, as StepPasses::run().
  /// `step`: number of the step, from 1 on, for messages. Throws an Error that names the gradient and the ranks if
  /// gradients differ.
  std::vector<TimedAction> run(StepPasses& passes, const TokenLoader& loader, std::int64_t first_sample,
                               std::int64_t step) const;

 private:
  int distance_to_copy() const;
};

}  // namespace lyceum
