#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "parallel/comm/transport.h"
#include "parallel/pipeline/schedule_kind.h"

namespace lyceum {

constexpr auto names_of(ScheduleKind) { return schedule_names; }

/// The placement of experts on ranks, see parallel/expert/placement.h.
enum class PlacementKind { contiguous, pairs, cost };
constexpr auto names_of(PlacementKind) { return std::array{"contiguous", "pairs", "cost"}; }

/// The route of tokens to the ranks of their experts: direct, or hierarchical in two steps, first between hosts.
/// automatic: hierarchical if the ranks of an expert group fill several hosts.
enum class DispatchKind { automatic, direct, hierarchical };
constexpr auto names_of(DispatchKind) { return std::array{"auto", "direct", "hierarchical"}; }

/// The computation that overlaps the exchange of tokens with experts on other ranks. none: nothing; shared: the shared
/// experts; batches: these and another micro-batch.
enum class Overlap { none, shared, batches };
constexpr auto names_of(Overlap) { return std::array{"none", "shared", "batches"}; }

/// The numbers of rows that ranks send each other in an exchange of tokens with experts: counted for each exchange, or
/// fixed upper bounds, which the host knows without waiting for the device.
enum class ExpertExchange { counted, bounded };
constexpr auto names_of(ExpertExchange) { return std::array{"counted", "bounded"}; }

/// The transport of tensors between GPUs. staged: MPI through host memory; automatic: NCCL unless ranks share a GPU.
enum class TransportKind { automatic, nccl, staged };
constexpr auto names_of(TransportKind) { return std::array{"auto", "nccl", "staged"}; }
constexpr auto names_of(NcclOrder) { return std::array{"concurrent", "serial"}; }

/// [parallel]: the mesh of ranks, and how they exchange tensors.
struct ParallelConfig {
  /// Sizes of the groups of ranks that divide the layers, each dense matrix, the experts of a layer, and each matrix of
  /// an expert; and the ZeRO stage (0 to 3).
  int pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1, zero = 0;
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  int virtual_stages = 1;  // pipeline stages per rank, for the interleaved schedule
  bool sequence = false;   // sequence parallelism over the tensor ranks
  PlacementKind placement = PlacementKind::contiguous;
  std::int64_t replace_every = 0;  // steps between changes of the placement; 0: it stays as it is
  double replace_gain = 0.05;      // least relative decrease of the busiest rank's FLOPs for which experts move
  int replicas = 0;                // spare slots per expert rank for replicas of hot experts
  DispatchKind dispatch = DispatchKind::automatic;
  int host_ranks = 0;  // number of consecutive ranks per host; 0: as started; stays 0 if hosts differ
  Overlap overlap = Overlap::shared;
  ExpertExchange expert_exchange = ExpertExchange::counted;
  TransportKind transport = TransportKind::automatic;
  NcclOrder nccl_order = NcclOrder::concurrent;
  int nccl_channels = 0;   // most channels of an NCCL communicator; 0: NCCL chooses
  bool checksums = false;  // add a checksum to every message of tensors that is sent with MPI
};

/// True if a step overlaps the backward pass of a micro-batch with the forward pass of the next one.
inline bool overlaps_batches(const ParallelConfig& parallel) {
  return parallel.overlap == Overlap::batches && parallel.expert > 1;
}

/// Returns the smallest number of ranks that forms a mesh of these groups. Every valid number of ranks is a multiple of
/// it.
std::int64_t fewest_ranks(const ParallelConfig& parallel);

/// Returns the number of hosts for the exchange of tokens in two steps: those that the ranks of an expert group fill,
/// with more than one expert rank each. 1 if there are no such hosts, or if parallel.dispatch is direct.
int expert_hosts(const ParallelConfig& parallel);

void declare_keys(ConfigKeys& keys, ParallelConfig& parallel);
/// Checks that the experts of every rank, and of every group of the device-level loss, form the pairs of
/// parallel.placement = pairs.
void check_placement(Findings& findings, const Config& config);
/// Checks that experts can move between ranks, if parallel.replace_every is set.
void check_replacement(Findings& findings, const Config& config);
/// Returns the largest possible value of parallel.replicas on `ranks` expert ranks: the number of experts that a rank
/// does not own, if all own equally many; 0 on one rank.
int most_replicas(const Config& config, int ranks);
/// Checks that experts can have replicas on other ranks, if parallel.replicas is set.
void check_replicas(Findings& findings, const Config& config);

}  // namespace lyceum
