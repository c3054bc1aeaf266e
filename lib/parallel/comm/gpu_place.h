#pragma once

#include "parallel/comm/process_group.h"

namespace lyceum {

/// Which GPU a rank computes on.
struct GpuPlace {
  int device;   // as CudaStream counts
  bool shared;  // whether any two ranks of the job have one GPU: NCCL refuses that, Transport::staged is for it
};

/// Gives each rank a GPU of its machine, by turns. Collective over `world`, all ranks of the job; only a build with
/// CUDA has it. Throws a usage Error on all ranks when one of them sees no GPU.
GpuPlace place_on_gpus(const ProcessGroup& world);

}  // namespace lyceum
