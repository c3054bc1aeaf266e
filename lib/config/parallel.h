#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "parallel/pipeline/schedule_kind.h"

namespace lyceum {

constexpr auto names_of(ScheduleKind) { return schedule_names; }

/// The placement of experts on ranks, see parallel/expert/placement.h.
enum class PlacementKind { contiguous, pairs, cost };
constexpr auto names_of(PlacementKind) { return std::array{"contiguous", "pairs", "cost"}; }

/// The way of tokens to the ranks of their experts; automatic: by way of hosts if ranks fill several of them.
enum class DispatchKind { automatic, direct, hierarchical };
constexpr auto names_of(DispatchKind) { return std::array{"auto", "direct", "hierarchical"}; }

/// The work of a rank while tokens travel to their experts and back: none, the shared experts, or also another
/// micro-batch.
enum class Overlap { none, shared, batches };
constexpr auto names_of(Overlap) { return std::array{"none", "shared", "batches"}; }

/// The transport of tensors between GPUs; staged: MPI through the host's memory; automatic: nccl unless ranks share a
/// GPU.
enum class TransportKind { automatic, nccl, staged };
constexpr auto names_of(TransportKind) { return std::array{"auto", "nccl", "staged"}; }

/// [parallel]: the mesh of ranks, and how they exchange tensors.
struct ParallelConfig {
  int pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1, zero = 0;
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  int virtual_stages = 1;
  bool sequence = false;
  PlacementKind placement = PlacementKind::contiguous;
  DispatchKind dispatch = DispatchKind::automatic;
  int host_ranks = 0;  // consecutive ranks that a host has; 0: not known
  Overlap overlap = Overlap::shared;
  TransportKind transport = TransportKind::automatic;
  bool checksums = false;  // add one to every message of tensors that is sent by MPI
};

/// True if a step runs a backward pass and the forward pass of the next micro-batch side by side.
inline bool overlaps_batches(const ParallelConfig& parallel) {
  return parallel.overlap == Overlap::batches && parallel.expert > 1;
}

/// Returns the fewest ranks that form a mesh of these groups. Any number that suits it is a multiple.
std::int64_t fewest_ranks(const ParallelConfig& parallel);

/// Returns the hosts over which tokens go to their experts in two steps: those that the ranks of an expert group fill,
/// with more than one expert rank on each. 1 if there are none, or parallel.dispatch is direct.
int expert_hosts(const ParallelConfig& parallel);

void declare_keys(ConfigKeys& keys, ParallelConfig& parallel);
/// Checks that experts form the pairs of parallel.placement = pairs on every rank and, since pairs number the experts
/// anew, in every group of the device-level loss.
void check_placement(Findings& findings, const Config& config);

}  // namespace lyceum
