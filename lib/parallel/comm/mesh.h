#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/comm/axis.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// A rank's coordinates on all axes of the mesh, with dp, tp, ep, etp the sizes of the axes:
///     rank = (pipeline · dp + data) · tp + tensor
///          = pipeline · dp · tp + (expert_data · ep + expert) · etp + expert_tensor
struct MeshCoordinates {
  int pipeline = 0, data = 0, tensor = 0, expert_data = 0, expert = 0, expert_tensor = 0;
  bool operator==(const MeshCoordinates&) const = default;
};

/// The number of ranks of each kind of parallelism. The world has pipeline · data · tensor ranks. The data · tensor
/// ranks of a stage are factored a second time for experts: data · tensor = expert_data · expert · expert_tensor.
struct MeshShape {
  int pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1;
  /// Number of hosts over which an expert group is distributed, with the same number of consecutive ranks on each. If
  /// greater than 1, tokens are sent to their experts in two steps (Mesh::expert_hosts).
  int expert_hosts = 1;

  int data(int world) const { return world / (pipeline * tensor); }
  int expert_data(int world) const { return world / (pipeline * expert * expert_tensor); }
  /// Returns an empty string if `world` ranks can form this mesh, else the reason why they cannot.
  std::string problem(int world) const;
  std::string text(int world) const;  // e.g. "pp1 dp4 tp1 · edp2 ep2 etp1"
  /// Returns the coordinates of rank `rank` of `world`. Throws a usage Error if the shape does not fit.
  MeshCoordinates index_of(int rank, int world) const;
};

/// The meaning of the abbreviations in MeshShape::text(), printed beside it.
constexpr std::string_view mesh_legend =
    "pp pipeline stages, dp data ranks, tp tensor ranks; for experts: edp data ranks, ep expert ranks, etp "
    "expert-tensor "
    "ranks";

/// This rank's groups: one for each axis or combination of axes. All ranks make all communicators at the start, in the
/// same order. See MeshCoordinates for the order of ranks.
struct Mesh {
  MeshShape shape;
  MeshCoordinates index;  // of this rank
  ProcessGroup world;
  ProcessGroup data;           // same stage and tensor index; holds copies of dense parameters
  ProcessGroup tensor;         // same stage and data index; dense matrices are divided among its ranks
  ProcessGroup pipeline;       // same coordinates within the stage, in the order of the stages
  ProcessGroup data_tensor;    // all ranks of a stage; holds copies of parameters that every tensor rank has in full
  ProcessGroup expert;         // the ranks among which the experts of a layer are divided
  ProcessGroup expert_tensor;  // the ranks among which each expert's matrices are divided
  ProcessGroup expert_data;    // same slices of the same experts; holds copies of expert parameters
  /// The ranks with any slices of the same experts: all ranks of a stage with this index on `expert`. Set if
  /// `expert_tensor` has several ranks; else it would be `expert_data`.
  std::optional<ProcessGroup> expert_copies;
  /// The expert group in two steps: `across` has the ranks with the same index on each host, `within` the ranks of one
  /// host.
  struct ExpertHosts {
    ProcessGroup across, within;
  };
  std::optional<ExpertHosts> expert_hosts;  // set if expert groups extend over several hosts

  /// Returns the group of this axis; for expert_copies, `expert_data` if `expert_copies` is not set. Throws an Error
  /// for expert_across and expert_within, which are only in `expert_hosts`, and for pipeline_ends, which is not a group
  /// of the mesh.
  const ProcessGroup& group(Axis axis) const;
  /// Returns the groups over which tokens are sent to their experts, in order: {across, within} or {expert}.
  std::vector<const ProcessGroup*> expert_hops() const;

  /// Returns all groups of the mesh, each with its axis.
  std::vector<std::pair<Axis, const ProcessGroup*>> groups() const;

  /// Collective. Throws a usage Error if the shape does not fit the world.
  static Mesh create(ProcessGroup world, MeshShape shape);
};

/// Collective over `pipeline`, which has several ranks. Returns a new group of its first and its last rank; the ranks
/// between them get another group, which is not used.
ProcessGroup new_pipeline_ends(const ProcessGroup& pipeline);

}  // namespace lyceum
