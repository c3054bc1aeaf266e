#include "plan/nccl_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include "optim/muon_group.h"
#include "parallel/pipeline/schedule.h"
#include "plan/muon_plan.h"

namespace lyceum {

namespace {

constexpr double granule = 2 << 20;  // bytes: allocations are multiples of it
/// Bytes of the three protocols (LL, LL128, Simple) for one connection and channel.
constexpr double ll = 8.0 * 512 * 8 * 16, ll128 = 120.0 * 640 * 8 * 8, simple = 1 << 22;
/// Bytes for one channel at both ends of a connection: within a machine the receiver has the buffers, over the network
/// both ends have them, the sender without those of LL.
constexpr double receive_buffers = 5 * granule, local_send = granule, network_send = 5 * granule;
static_assert(ll + ll128 + simple > 4 * granule && ll + ll128 + simple < receive_buffers);
static_assert(ll128 + simple > 4 * granule && ll128 + simple < network_send);
/// Bytes for one channel in which all messages and all-to-alls between machines share their buffers, per direction: 16
/// steps of 128 KiB.
constexpr double shared_network = 16.0 * (128 << 10);
/// Bytes of reductions in the NVLink switch for one channel and one rank of the machine: 8 steps of 128 KiB in either
/// direction.
constexpr double in_switch = 2.0 * 8 * (128 << 10);
constexpr int most_in_switch = 32;    // ranks
constexpr int usual_host_ranks = 8;   // GPUs of a machine
constexpr int tree_neighbours = 4;    // a parent and three children
constexpr int switch_neighbours = 3;  // of trees of NVLink switches: a parent and two children

/// The ranks of a communicator.
struct Members {
  int ranks;
  int local;   // most of them on one machine
  bool spans;  // true if they may be on several machines
};

int ranks_of_machine(const Config& config) {
  return config.parallel.host_ranks > 0 ? config.parallel.host_ranks : usual_host_ranks;
}

Members members_of(const Config& config, const MeshRank& mesh_rank, const RunGroup& group) {
  const int host = ranks_of_machine(config), ranks = group.ranks;
  const Axis axis = group.use == RunGroup::Use::matrices ? muon_axis(mesh_rank, group.units) : group.axis;
  // expert_copies and the groups within a stage are not evenly spaced.
  const bool even = axis != Axis::expert_copies && axis != Axis::data_tensor;
  int stride = even ? mesh_rank.stride(axis) : 1;
  if (axis == Axis::pipeline_ends && mesh_rank.index.pipeline % (mesh_rank.shape.pipeline - 1) != 0)
    stride = mesh_rank.stage_ranks();   // the stages between the ends
  int block = mesh_rank.stage_ranks();  // consecutive ranks among which the members are
  if (axis == Axis::world || axis == Axis::pipeline || axis == Axis::pipeline_ends) {
    block = mesh_rank.world;
  } else if (even) {
    block = ranks * stride;
  }
  return {.ranks = ranks,
          .local = std::min(ranks, (host + stride - 1) / stride),
          .spans = mesh_rank.world > host && host % block != 0};
}

NcclOperations operations_of(const Traffic& traffic, Axis axis) {
  const auto any = [&](Transfer transfer) { return traffic.of(axis, transfer).bytes > 0; };
  return {.sums = any(Transfer::all_reduce),
          .gathers = any(Transfer::reduce_scatter) || any(Transfer::all_gather),
          .exchanges = any(Transfer::all_to_all)};
}

/// Returns the operations of a group for Muon's matrices.
NcclOperations muon_operations(const Config& config, const MeshRank& mesh_rank, const RankPlan& plan,
                               ParameterUnit::Group units) {
  const MatrixSharing sharing =
      muon_group(mesh_rank.shape, mesh_rank.world, mesh_rank.index, units, config.parallel.zero).sharing;
  // A rank that owns no matrix takes part in gathers, but its part has 0 bytes.
  if (sharing.gathers()) return {.gathers = plan.muon_flops > 0};
  return {.exchanges = plan.step.matrices.of(muon_axis(mesh_rank, units), Transfer::all_to_all).bytes > 0};
}

/// Returns the operations of a group of a rank. `reading`: see nccl_communicators().
NcclOperations operations_of(const Config& config, const MeshRank& mesh_rank, const RankPlan& plan,
                             const RunGroup& group, bool reading) {
  using enum RunGroup::Use;
  switch (group.use) {
    case gradients: {
      NcclOperations operations = operations_of(plan.step.reductions, group.axis);
      if (config.parallel.zero >= 1) operations.sums = operations.gathers;  // of the norms of sharded gradients
      return operations;
    }
    case values: {
      // A rank whose parts are empty takes part in gathers of 0 bytes.
      const bool sharded = plan.step.reductions.of(group.axis, Transfer::reduce_scatter).bytes > 0;
      return {.gathers = sharded || plan.step.gathers.of(group.axis, Transfer::all_gather).bytes > 0};
    }
    case matrices: return muon_operations(config, mesh_rank, plan, group.units);
    case experts: return {.exchanges = true};
    case shared_table: return operations_of(plan.step.end, group.axis);
    case passes: break;
  }
  // At the end of a step, copies of parameters sum up norms in their group for gradients, and MPI sums up the numbers
  // of trained targets.
  const bool copies = group.axis == Axis::data || group.axis == Axis::expert_data || group.axis == Axis::expert_copies;
  NcclOperations operations = operations_of(copies ? plan.passes : plan.passes + plan.step.end, group.axis);
  if (group.axis == Axis::data && !reading && config.optim.qk_clip > 0) operations.sums = true;
  const bool experts_of_ranks =
      group.axis == Axis::expert || group.axis == Axis::expert_across || group.axis == Axis::expert_within;
  if (experts_of_ranks) operations.gathers = false;  // of numbers of rows, by MPI
  return operations;
}

double bytes_without_connections(const Members& members, int channels) {
  const double pairwise = std::bit_ceil(static_cast<unsigned>(channels));
  return granule * (2 + 3 * pairwise + (members.local > 1 ? channels + 1 : 0));
}

/// Returns the number of ranks with which a rank exchanges data by PAT, in both directions: those at distances that are
/// powers of two, before and after it.
int pat_neighbours(int ranks) {
  std::set<int> all;
  for (int distance = 1; distance < ranks; distance *= 2) all.insert({distance, ranks - distance});
  return static_cast<int>(all.size());
}

/// Returns the bytes of the connections of a communicator.
double connection_bytes(const Members& members, const NcclOperations& operations, int channels) {
  const auto [ranks, local, spans] = members;
  const double pairwise = std::bit_ceil(static_cast<unsigned>(channels));
  const double both_ends = receive_buffers + (spans ? network_send : local_send);
  int neighbours = 0;  // with which a rank has connections in both directions, or twice as many in one direction
  if (operations.sums || operations.gathers) neighbours = 1;  // a ring
  // The connections of PAT include the ring, which has the order of ranks if each is on another machine.
  if (operations.gathers && spans && local == 1) neighbours = pat_neighbours(ranks);
  if (operations.sums && !spans) neighbours = 2;  // a tree is a chain along the ring
  if (operations.sums && spans) neighbours += tree_neighbours + (local > 1 ? switch_neighbours : 0);
  neighbours = std::min(neighbours, ranks - 1);
  double bytes = channels * neighbours * both_ends;
  if ((operations.sums || operations.gathers) && local > 1)
    bytes += channels * in_switch * std::min(local, most_in_switch);
  if (operations.exchanges) {
    bytes += pairwise * (local - 1) * (receive_buffers + local_send);
    // A rank has the buffers of what it receives, and of what ranks of its machine send through its network adapter.
    if (spans) bytes += pairwise * shared_network * (1 + local);
  }
  return bytes;
}

/// Returns the most bytes of a communicator for messages on a rank of pipeline rank `own`, one of `from` and `to`: a
/// machine may have both ranks for some members of the stages, and not for others.
double message_bytes(const Config& config, const MeshRank& mesh_rank, int own, int from, int to, int channels) {
  const int host = ranks_of_machine(config), stage = mesh_rank.stage_ranks();
  const int first = std::min(from, to) * stage, distance = std::abs(from - to) * stage;
  bool near = false, far = false;
  for (int rank = first; rank < first + std::min(stage, host); ++rank) {
    (rank % host + distance < host ? near : far) = true;
  }
  const double pairwise = std::bit_ceil(static_cast<unsigned>(channels));
  const double connection = std::max(near ? (own == from ? local_send : receive_buffers) : 0, far ? shared_network : 0);
  return bytes_without_connections({.ranks = 2, .local = near ? 2 : 1, .spans = far}, channels) + pairwise * connection;
}

/// Returns the pairs (sender, receiver) of pipeline ranks between which messages of this rank travel.
std::set<std::pair<int, int>> message_pairs(const ParallelConfig& parallel, int row, bool reading) {
  const PipelineShape shape{.ranks = parallel.pipeline, .virtual_stages = parallel.virtual_stages};
  std::set<std::pair<int, int>> pairs;
  for (int stage = 0; stage + 1 < shape.stages(); ++stage) {
    const int from = shape.rank_of(stage), to = shape.rank_of(stage + 1);
    if (from == to || (from != row && to != row)) continue;
    pairs.emplace(from, to);
    if (!reading) pairs.emplace(to, from);
  }
  return pairs;
}

}  // namespace

bool sends_by_nccl(const Config& config, bool on_gpus) {
  return config.parallel.transport != TransportKind::staged && (on_gpus || config.run.device == DeviceKind::cuda);
}

std::vector<RunGroup> groups_of_rank(const Config& config, int world, const RankPlan& plan, bool reading) {
  const Mesh mesh = Mesh::create(ProcessGroup::rehearsal(plan.rank, world), mesh_shape(config.parallel));
  return reading ? mesh_groups(mesh)
                 : training_groups(config, mesh, plan.step.reductions.bytes(Axis::expert_copies) > 0);
}

const std::vector<RunGroup>& GroupsOfRanks::of(const Config& config, int world, const RankPlan& plan) {
  const MeshRank mesh_rank = MeshRank::of(config.parallel, world, plan.rank);
  const MeshShape& shape = mesh_rank.shape;
  const int row = mesh_rank.index.pipeline, last = shape.pipeline - 1;
  const auto [entry, fresh] = groups_.try_emplace(
      {world, shape.pipeline, shape.tensor, shape.expert, shape.expert_tensor, shape.expert_hosts,
       row == 0 ? 0 : (row == last ? 1 : 2), plan.step.reductions.bytes(Axis::expert_copies) > 0 ? 1 : 0});
  if (fresh) entry->second = groups_of_rank(config, world, plan);
  return entry->second;
}

std::vector<NcclCommunicator> nccl_communicators(const Config& config, const MeshRank& mesh_rank, const RankPlan& plan,
                                                 const std::vector<RunGroup>& groups, int channels, bool reading) {
  std::vector<NcclCommunicator> all;
  for (const RunGroup& group : groups) {
    const Members members = members_of(config, mesh_rank, group);
    const NcclOperations operations = operations_of(config, mesh_rank, plan, group, reading);
    all.push_back(
        {.name = group.name,
         .ranks = group.ranks,
         .operations = operations,
         .bytes = bytes_without_connections(members, channels) + connection_bytes(members, operations, channels)});
  }
  const int row = mesh_rank.index.pipeline;
  for (const auto& [from, to] : message_pairs(config.parallel, row, reading)) {
    all.push_back({.name = format_message("pipeline messages from {} to {}", {from, to}),
                   .ranks = 2,
                   .operations = {.exchanges = true},
                   .bytes = message_bytes(config, mesh_rank, row, from, to, channels)});
  }
  return all;
}

double nccl_bytes(const std::vector<NcclCommunicator>& communicators) {
  return std::accumulate(communicators.begin(), communicators.end(), 0.0,
                         [](double sum, const NcclCommunicator& one) { return sum + one.bytes; });
}

double unlimited_nccl_bytes(const MeshPlan& plan, bool on_gpus) {
  if (plan.config.parallel.nccl_channels > 0 || !sends_by_nccl(plan.config, on_gpus)) return 0;
  const RankPlan& rank = plan.fullest();
  const bool reading = plan.reading.has_value();
  return nccl_bytes(nccl_communicators(plan.config, MeshRank::of(plan.config.parallel, plan.world, rank.rank), rank,
                                       groups_of_rank(plan.config, plan.world, rank, reading), most_nccl_channels,
                                       reading));
}

}  // namespace lyceum
