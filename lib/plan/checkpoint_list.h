#pragma once

#include <cstdint>

#include "config/config.h"

namespace lyceum {

/// The list of the tensors of a run's checkpoints, with the place of each in the files. It is in memory for a short
/// time and not part of RankMemory.
struct CheckpointList {
  std::int64_t tensors = 0;   // with optimizer state and averages, as if all weights were trained
  double resuming_bytes = 0;  // of memory on every rank while a run resumes
  double saving_bytes = 0;    // of memory on rank 0 while a checkpoint is saved
};

/// Returns the list for a resolved configuration. It does not depend on the mesh: that a tensor takes more memory if
/// several ranks save parts of it is not counted.
CheckpointList checkpoint_list(const Config& config);

}  // namespace lyceum
