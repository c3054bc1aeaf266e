#pragma once

#include <string>

#include "optim/optimizer.h"
#include "optim/step_numbers.h"
#include "train/step/finding.h"
#include "train/step/step_passes.h"

namespace lyceum {

/// Collective over the world. Finds the cause of an infinite or NaN loss or gradient norm in a skipped step. Returns a
/// text that is equal on all ranks: "the gradient of … on ranks …".
///   1. Each rank examines its weights, losses and summed gradients. A weight that is not finite is the cause.
///   2. Sums over copies do not show which rank made a number that is not finite. So the passes are run again, which is
///      possible since a skipped step moved no weight. Each rank examines its outputs and gradients before it sends
///      them.
///   3. The ranks agree on the finding that says most about the cause.
/// `values`: the numbers of the skipped step. `layers`: as for StepEnd.
std::string find_nonfinite(const ProcessGroup& world, StepPasses& passes, const Optimizer& optimizer,
                           const StepNumbers::Values& values, int layers);

}  // namespace lyceum
