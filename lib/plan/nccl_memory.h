#pragma once

#include <string>
#include <vector>

#include "optim/run_groups.h"
#include "plan/mesh_plan.h"

namespace lyceum {

/// The largest number of channels of a communicator of NCCL, whatever its settings (MAXCHANNELS of NCCL 2.30).
inline constexpr int most_nccl_channels = 64;

/// The kinds of calls of NCCL that a communicator is used for.
struct NcclOperations {
  bool sums = false;       // all-reduce
  bool gathers = false;    // reduce-scatter, all-gather, reduce, broadcast
  bool exchanges = false;  // sends and receives
  bool operator==(const NcclOperations&) const = default;
};

/// A communicator of a rank, and the most memory on the GPU that NCCL takes for it.
struct NcclCommunicator {
  std::string name;
  int ranks;
  NcclOperations operations;
  double bytes;
};

/// True if the ranks of this configuration send tensors by NCCL. `on_gpus`: true if they have GPUs whatever run.device
/// is.
bool sends_by_nccl(const Config& config, bool on_gpus);

/// Returns the groups of a planned rank, see training_groups(); with `reading`, those of evaluation or generation.
/// Their names and sizes are the same for all ranks of a pipeline row.
std::vector<RunGroup> groups_of_rank(const Config& config, int world, const RankPlan& plan, bool reading = false);

/// Returns the communicators of a rank: one for each of `groups`, and one for each neighbour in the pipeline and
/// direction of messages, with at most `channels` channels each. `reading`: as for groups_of_rank().
///
/// The memory is that of NCCL 2.30 with its default settings and CUDA's virtual memory, in which every allocation takes
/// whole 2 MiB:
///   - for each communicator: 2 allocations, and 3 for each channel, of which there is a power of two; if a machine has
///     several of its ranks, also 1 for each channel and 1 for reductions in the NVLink switch;
///   - for each connection to another rank, see docs/cuda.md. Connections are made for what the group transfers by
///     `plan`: rings and trees for reductions and gathers, one connection for each rank of an all-to-all.
/// Ranks are divided among machines as parallel.host_ranks says; 0: 8 ranks per machine. Not counted are messages to
/// rank 0 in an evaluation that writes results of each token.
std::vector<NcclCommunicator> nccl_communicators(const Config& config, const MeshRank& mesh_rank, const RankPlan& plan,
                                                 const std::vector<RunGroup>& groups, int channels,
                                                 bool reading = false);
/// Returns the sum of their bytes.
double nccl_bytes(const std::vector<NcclCommunicator>& communicators);

/// Returns an upper bound of the bytes that NCCL takes on the rank of `plan` that needs the most memory, if NCCL
/// chooses the number of channels. 0 if parallel.nccl_channels limits them, since RankMemory::nccl then counts them, or
/// if there is no communicator.
double unlimited_nccl_bytes(const MeshPlan& plan, bool on_gpus);

}  // namespace lyceum
