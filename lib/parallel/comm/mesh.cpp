#include "parallel/comm/mesh.h"

#include <array>
#include <numeric>
#include <utility>
#include <vector>

namespace lyceum {

std::string MeshShape::problem(int world) const {
  const auto wrong = [](std::string_view text, auto... args) {
    return format_message(text, {message_argument(args)...});
  };
  const std::pair<const char*, int> axes[] = {{"parallel.pipeline", pipeline},
                                              {"parallel.tensor", tensor},
                                              {"parallel.expert", expert},
                                              {"parallel.expert_tensor", expert_tensor}};
  if (world < 1) return wrong("{} ranks: at least 1 is needed", world);
  for (const auto& [key, value] : axes) {
    if (value < 1) return wrong("{} = {}: must be at least 1", key, value);
    if (value > world) return wrong("{} = {} is more than the {} ranks that there are", key, value, world);
  }
  const std::int64_t stage_ranks = world / pipeline;
  if (world % pipeline != 0) return wrong("parallel.pipeline = {} does not divide the {} ranks", pipeline, world);
  if (stage_ranks % tensor != 0) {
    return wrong("parallel.tensor = {} does not divide the {} ranks of a pipeline stage", tensor, stage_ranks);
  }
  if (stage_ranks % (std::int64_t{expert} * expert_tensor) != 0) {
    return wrong("parallel.expert · parallel.expert_tensor = {} · {} does not divide the {} ranks of a pipeline stage",
                 expert, expert_tensor, stage_ranks);
  }
  return {};
}

std::string MeshShape::text(int world) const {
  return format_message(
      "pp{} dp{} tp{} · edp{} ep{} etp{}",
      {message_argument(pipeline), message_argument(data(world)), message_argument(tensor),
       message_argument(expert_data(world)), message_argument(expert), message_argument(expert_tensor)});
}

MeshIndex MeshShape::index_of(int rank, int world) const {
  require_usage(problem(world).empty(), "the mesh does not fit: {}", problem(world));
  require(rank >= 0 && rank < world, "rank {} of {} ranks", rank, world);
  const int stage_ranks = world / pipeline, within = rank % stage_ranks;
  return {.pipeline = rank / stage_ranks,
          .data = within / tensor,
          .tensor = within % tensor,
          .expert_data = within / (expert * expert_tensor),
          .expert = within / expert_tensor % expert,
          .expert_tensor = within % expert_tensor};
}

namespace {

/// What a group of a mesh runs along: a colour numbers the places on all other axes, the key is that on its own.
struct Axis {
  const char* name;
  int colour, key;
};

/// In the order of the groups in Mesh.
std::array<Axis, 7> axes_of(const MeshShape& shape, int rank, int world) {
  const MeshIndex at = shape.index_of(rank, world);
  const int dp = shape.data(world), tp = shape.tensor;
  const int edp = shape.expert_data(world), ep = shape.expert, etp = shape.expert_tensor;
  return {{{"data", at.pipeline * tp + at.tensor, at.data},
           {"tensor", at.pipeline * dp + at.data, at.tensor},
           {"pipeline", at.data * tp + at.tensor, at.pipeline},
           {"data_tensor", at.pipeline, at.data * tp + at.tensor},
           {"expert", (at.pipeline * edp + at.expert_data) * etp + at.expert_tensor, at.expert},
           {"expert_tensor", (at.pipeline * edp + at.expert_data) * ep + at.expert, at.expert_tensor},
           {"expert_data", (at.pipeline * ep + at.expert) * etp + at.expert_tensor, at.expert_data}}};
}

Mesh assembled(const MeshShape& shape, const MeshIndex& index, ProcessGroup world, std::vector<ProcessGroup> groups) {
  return {.shape = shape,
          .index = index,
          .world = std::move(world),
          .data = std::move(groups[0]),
          .tensor = std::move(groups[1]),
          .pipeline = std::move(groups[2]),
          .data_tensor = std::move(groups[3]),
          .expert = std::move(groups[4]),
          .expert_tensor = std::move(groups[5]),
          .expert_data = std::move(groups[6])};
}

}  // namespace

Mesh Mesh::create(ProcessGroup world, MeshShape shape) {
  const MeshIndex index = shape.index_of(world.rank(), world.size());
  std::vector<ProcessGroup> groups;
  for (const Axis& axis : axes_of(shape, world.rank(), world.size())) {
    groups.push_back(world.split(axis.colour, axis.key, axis.name));
  }
  return assembled(shape, index, std::move(world), std::move(groups));
}

Mesh Mesh::rehearsal(MeshShape shape, int rank, int ranks) {
  const std::array<Axis, 7> own = axes_of(shape, rank, ranks);
  std::array<std::vector<int>, 7> members;
  for (int other = 0; other < ranks; ++other) {  // in the order of the keys, on every axis
    const std::array<Axis, 7> axes = axes_of(shape, other, ranks);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].colour == own[i].colour) members[i].push_back(other);
    }
  }
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  ProcessGroup world = ProcessGroup::rehearsal({.name = "world", .colour = 0, .rank = rank, .members = std::move(all)});
  std::vector<ProcessGroup> groups;
  for (std::size_t i = 0; i < own.size(); ++i) {
    groups.push_back(ProcessGroup::rehearsal(
        {.name = own[i].name, .colour = own[i].colour, .rank = own[i].key, .members = std::move(members[i])}, world));
  }
  return assembled(shape, shape.index_of(rank, ranks), std::move(world), std::move(groups));
}

}  // namespace lyceum
