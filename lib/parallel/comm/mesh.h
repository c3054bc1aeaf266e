#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/axis.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// A rank's place on every axis of the mesh:
/// rank = (pipeline · dp + data) · tp + tensor = pipeline · dp · tp + (expert_data · ep + expert) · etp +
/// expert_tensor.
struct MeshIndex {
  int pipeline = 0, data = 0, tensor = 0, expert_data = 0, expert = 0, expert_tensor = 0;
  bool operator==(const MeshIndex&) const = default;
};

/// How many ranks each kind of parallelism takes. world = pipeline · data · tensor, and the data · tensor ranks of a
/// stage are factored a second time for experts: data · tensor = expert_data · expert · expert_tensor.
struct MeshShape {
  int pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1;
  /// Hosts that the ranks of an expert group lie on, equally many on each and neighbours there. Of more than one,
  /// tokens go to their experts in two steps.
  int expert_hosts = 1;

  int data(int world) const { return world / (pipeline * tensor); }
  int expert_data(int world) const { return world / (pipeline * expert * expert_tensor); }
  /// Empty when `world` ranks can form this mesh, else what does not divide.
  std::string problem(int world) const;
  std::string text(int world) const;  // "pp1 dp4 tp1 · edp2 ep2 etp1"
  /// The place of rank `rank` of `world`. Throws where the shape does not fit.
  MeshIndex index_of(int rank, int world) const;
};

/// The meaning of the letters of MeshShape::text(), to be printed beside it.
constexpr std::string_view mesh_legend =
    "pp pipeline stages, dp data ranks, tp tensor ranks; for experts: edp data ranks, ep expert ranks, etp "
    "expert-tensor "
    "ranks";

/// This rank's groups: one object a kind, every communicator made eagerly and in one order on all ranks.
/// rank = (p · dp + d) · tp + t, and within a stage (ed · ep + e) · etp + et.
struct Mesh {
  MeshShape shape;
  MeshIndex index;  // of this rank
  ProcessGroup world;
  ProcessGroup data;           // same stage and tensor index: dense parameters are replicated over it
  ProcessGroup tensor;         // same stage and data index: share out dense matrices
  ProcessGroup pipeline;       // the same place in every stage, in the order of the stages
  ProcessGroup data_tensor;    // all ranks of a stage: what tensor ranks hold whole is replicated over it
  ProcessGroup expert;         // the ranks that share out one layer's experts
  ProcessGroup expert_tensor;  // the ranks that share out each of the same experts
  ProcessGroup expert_data;    // same parts of the same experts: expert parameters are replicated over it
  /// The expert group in two steps: ranks of one place on each host, and those of one host.
  struct ExpertHosts {
    ProcessGroup across, within;
  };
  std::optional<ExpertHosts> expert_hosts;  // if it is on several

  /// The group of that name. Throws for one that the mesh does not have.
  const ProcessGroup& group(Axis axis) const;
  /// The groups that tokens go through to their experts.
  std::vector<const ProcessGroup*> expert_hops() const;

  /// Throws a usage Error where the shape does not fit the world.
  static Mesh create(ProcessGroup world, MeshShape shape);
};

}  // namespace lyceum
