#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/setup/run_setup.h"
#include "train/step/step_passes.h"

namespace lyceum {

/// Runs the passes of a step twice, and once with the tokens of another rank that has copies of the same parameters and
/// the same processor, if there is one, and compares all gradients. A step has the same bits whenever and wherever it
/// is computed: a difference is a fault of a processor, of memory or of a message, and throws an Error that names the
/// gradient and the ranks.
struct Replay {
  const Config& config;
  const RunSetup& setup;
  std::span<const UnitShare> shares;
  int layers;       // as of StepEnd
  bool first_step;  // of this process: algorithms that a rank has just timed are not yet those of all ranks

  /// Collective. `step`: its number, from 1 on, for messages. The last passes are those of the step itself, whose trace
  /// is returned.
  std::vector<TimedAction> run(StepPasses& passes, const TokenLoader& loader, std::int64_t first_sample,
                               std::int64_t step) const;

 private:
  int distance_to_copy() const;
};

}  // namespace lyceum
