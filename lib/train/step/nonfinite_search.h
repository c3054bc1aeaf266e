#pragma once

#include <string>

#include "optim/optimizer.h"
#include "optim/step_numbers.h"
#include "train/step/finding.h"
#include "train/step/step_passes.h"

namespace lyceum {

/// Finds what made a skipped step's loss or gradient norm infinite or NaN. Sums over copies and norms show that
/// something is not finite, but not which rank made it. A skipped step moved no weight, so its passes are run again,
/// and each rank examines its outputs and gradients before other ranks get them. Collective. Returns "the gradient of …
/// on ranks …", the same on all ranks. `layers`: as of StepEnd.
std::string find_nonfinite(const ProcessGroup& world, StepPasses& passes, const Optimizer& optimizer,
                           const StepNumbers::Values& values, int layers);

}  // namespace lyceum
