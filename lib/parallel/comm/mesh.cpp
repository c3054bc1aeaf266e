#include "parallel/comm/mesh.h"

#include <utility>

namespace lyceum {

std::string MeshShape::problem(int world) const {
  const auto wrong = [](std::string_view text, auto... args) { return format_message(text, {args...}); };
  const std::pair<const char*, int> axes[] = {{"parallel.pipeline", pipeline},
                                              {"parallel.tensor", tensor},
                                              {"parallel.expert", expert},
                                              {"parallel.expert_tensor", expert_tensor}};
  if (world < 1) return wrong("{} ranks: must be at least 1", world);
  for (const auto& [key, value] : axes) {
    if (value < 1) return wrong("{} = {}: must be at least 1", key, value);
    if (value > world) return wrong("{} = {} is more than the {} ranks of the job", key, value, world);
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
  if (expert_hosts < 1 || expert % expert_hosts != 0) {
    return wrong("{} expert ranks cannot be divided among {} hosts", expert, expert_hosts);
  }
  return {};
}

std::string MeshShape::text(int world) const {
  const std::string hosts = expert_hosts > 1 ? format_message(" on {} hosts", {expert_hosts}) : "";
  return format_message("pp{} dp{} tp{} · edp{} ep{}{} etp{}",
                        {pipeline, data(world), tensor, expert_data(world), expert, hosts, expert_tensor});
}

MeshCoordinates MeshShape::index_of(int rank, int world) const {
  require_usage(problem(world).empty(), "the mesh does not fit: {}", problem(world));
  require(rank >= 0 && rank < world, "rank {} is not one of the {} ranks of the mesh", rank, world);
  const int stage_ranks = world / pipeline, within = rank % stage_ranks;
  return {.pipeline = rank / stage_ranks,
          .data = within / tensor,
          .tensor = within % tensor,
          .expert_data = within / (expert * expert_tensor),
          .expert = within / expert_tensor % expert,
          .expert_tensor = within % expert_tensor};
}

const ProcessGroup& Mesh::group(Axis axis) const {
  switch (axis) {
    case Axis::world: return world;
    case Axis::data: return data;
    case Axis::tensor: return tensor;
    case Axis::pipeline: return pipeline;
    case Axis::data_tensor: return data_tensor;
    case Axis::expert: return expert;
    case Axis::expert_tensor: return expert_tensor;
    case Axis::expert_data: return expert_data;
    case Axis::expert_copies: return expert_copies ? *expert_copies : expert_data;
    default: fail(ExitCode::failed, "the mesh has no group {}", axis_names[static_cast<std::size_t>(axis)]);
  }
}

Mesh Mesh::create(ProcessGroup world, MeshShape shape) {
  const int ranks = world.size();
  const MeshCoordinates own = shape.index_of(world.rank(), ranks);
  const int dp = shape.data(ranks), tp = shape.tensor;
  const int edp = shape.expert_data(ranks), ep = shape.expert, etp = shape.expert_tensor;
  // A group contains the ranks that differ only in its own coordinate; the colour numbers the other coordinates. Within
  // a group, ranks keep the order of the world.
  const auto along = [&](const char* name, auto colour) {
    return world.split([&](int rank) { return colour(shape.index_of(rank, ranks)); }, name);
  };
  using At = const MeshCoordinates&;
  ProcessGroup data = along("data", [&](At at) { return at.pipeline * tp + at.tensor; });
  ProcessGroup tensor = along("tensor", [&](At at) { return at.pipeline * dp + at.data; });
  ProcessGroup pipeline = along("pipeline", [&](At at) { return at.data * tp + at.tensor; });
  ProcessGroup data_tensor = along("data_tensor", [&](At at) { return at.pipeline; });
  ProcessGroup expert =
      along("expert", [&](At at) { return (at.pipeline * edp + at.expert_data) * etp + at.expert_tensor; });
  ProcessGroup expert_tensor =
      along("expert_tensor", [&](At at) { return (at.pipeline * edp + at.expert_data) * ep + at.expert; });
  ProcessGroup expert_data =
      along("expert_data", [&](At at) { return (at.pipeline * ep + at.expert) * etp + at.expert_tensor; });
  std::optional<ProcessGroup> expert_copies;
  if (etp > 1) expert_copies = along("expert_copies", [&](At at) { return at.pipeline * ep + at.expert; });
  std::optional<ExpertHosts> hosts;
  if (const int each = ep / shape.expert_hosts; shape.expert_hosts > 1) {
    const auto group = [&](At at) { return (at.pipeline * edp + at.expert_data) * etp + at.expert_tensor; };
    ProcessGroup across = along("expert_across", [&](At at) { return group(at) * each + at.expert % each; });
    ProcessGroup within =
        along("expert_within", [&](At at) { return group(at) * shape.expert_hosts + at.expert / each; });
    hosts.emplace(ExpertHosts{.across = std::move(across), .within = std::move(within)});
  }
  return {.shape = shape,
          .index = own,
          .world = std::move(world),
          .data = std::move(data),
          .tensor = std::move(tensor),
          .pipeline = std::move(pipeline),
          .data_tensor = std::move(data_tensor),
          .expert = std::move(expert),
          .expert_tensor = std::move(expert_tensor),
          .expert_data = std::move(expert_data),
          .expert_copies = std::move(expert_copies),
          .expert_hosts = std::move(hosts)};
}

std::vector<const ProcessGroup*> Mesh::expert_hops() const {
  if (expert_hosts) return {&expert_hosts->across, &expert_hosts->within};
  return {&expert};
}

std::vector<std::pair<Axis, const ProcessGroup*>> Mesh::groups() const {
  std::vector<std::pair<Axis, const ProcessGroup*>> all;
  for (const Axis axis : {Axis::world, Axis::data, Axis::tensor, Axis::pipeline, Axis::data_tensor, Axis::expert,
                          Axis::expert_tensor, Axis::expert_data}) {
    all.emplace_back(axis, &group(axis));
  }
  if (expert_copies) all.emplace_back(Axis::expert_copies, &*expert_copies);
  if (expert_hosts) {
    all.emplace_back(Axis::expert_across, &expert_hosts->across);
    all.emplace_back(Axis::expert_within, &expert_hosts->within);
  }
  return all;
}

ProcessGroup new_pipeline_ends(const ProcessGroup& pipeline) {
  const int last = pipeline.size() - 1;
  return pipeline.split([=](int rank) { return rank == 0 || rank == last ? 0 : 1; }, "pipeline ends");
}

}  // namespace lyceum
