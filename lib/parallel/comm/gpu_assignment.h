#pragma once

#include "parallel/comm/process_group.h"

namespace lyceum {

/// The GPU on which a rank computes.
struct GpuAssignment {
  int device;   // device number as in CudaStream
  bool shared;  // true if two ranks of the job use the same GPU, which NCCL refuses: use Transport::staged
};

/// Collective over `world`, all ranks of the job. Assigns the GPUs of each machine to its ranks in round-robin order.
/// Throws a usage Error on all ranks if one of them sees no GPU. Only defined in builds with CUDA.
GpuAssignment assign_gpus(const ProcessGroup& world);

}  // namespace lyceum
