#include "optim/run_groups.h"

#include "model/routing/mixture.h"
#include "optim/expert_mover.h"
#include "optim/muon_exchange.h"
#include "parallel/data/copies.h"

namespace lyceum {

namespace {

void add(std::vector<RunGroup>& groups, RunGroup::Use use, Axis axis, const ProcessGroup& group,
         ParameterUnit::Group units = ParameterUnit::Group::dense) {
  if (group.size() == 1) return;
  groups.push_back({.name = group.name(), .use = use, .axis = axis, .ranks = group.size(), .units = units});
}

}  // namespace

std::vector<RunGroup> mesh_groups(const Mesh& mesh) {
  std::vector<RunGroup> groups;
  for (const auto& [axis, group] : mesh.groups()) add(groups, RunGroup::Use::passes, axis, *group);
  return groups;
}

std::vector<RunGroup> training_groups(const Config& config, const Mesh& mesh, bool adapts_experts) {
  using enum RunGroup::Use;
  std::vector<RunGroup> groups = mesh_groups(mesh);
  for (const ParameterUnit::Group group : parameter_groups) {
    if (group == ParameterUnit::Group::expert_replicated && !adapts_experts) continue;
    const CopyGroups copies = new_copy_groups(mesh, group);
    add(groups, gradients, copies_axis(group), copies.reductions, group);
    add(groups, values, copies_axis(group), copies.gathers, group);
  }
  if (config.optim.rule == UpdateRuleName::muon) {
    for (const ParameterUnit::Group group : muon_groups) {
      add(groups, matrices, Axis::data_tensor, new_muon_group(mesh, group), group);
    }
  }
  if (config.parallel.replace_every > 0) add(groups, experts, Axis::data_tensor, new_mover_group(mesh));
  if (shares_table(config) && mesh.pipeline.size() > 1) {
    add(groups, shared_table, Axis::pipeline_ends, new_pipeline_ends(mesh.pipeline));
  }
  return groups;
}

}  // namespace lyceum
