#pragma once

#include "plan/traffic.h"

namespace lyceum {

/// Returns the bytes of NCCL's buffers on the GPU of a rank with this traffic, for parallel.nccl_channels channels.
/// Counts one communicator for each group and operation (ZeRO gathers in one and reduces in another), which has at most
/// these buffers, for every channel and every rank that it receives from:
///   - all ranks of the group for an all-to-all, of which a power of two of channels is used;
///   - at most two neighbours for reductions and gathers, in rings and trees; in groups of more than two ranks also the
///     buffers of reductions in the NVLink switch;
///   - at most two neighbours for messages between pipeline stages.
/// Ignores the communicators of MuonExchange and ExpertMover, and what NCCL takes besides these buffers. The sizes of
/// buffers are NCCL's defaults (docs/cuda.md). Returns 0 if parallel.nccl_channels is 0, or if the tensors of this
/// configuration are not sent by NCCL. `on_gpus`: true if the ranks have GPUs whatever run.device is.
double nccl_bytes(const Config& config, const MeshRank& mesh_rank, const Traffic& traffic, bool on_gpus);

}  // namespace lyceum
