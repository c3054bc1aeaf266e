#include "plan/muon_plan.h"

#include <algorithm>
#include <vector>

#include "model/working_type.h"
#include "optim/muon_group.h"
#include "optim/muon_rounds.h"
#include "parallel/data/copies.h"

namespace lyceum {

namespace {

/// Returns the layout of the group's units as far as this rank knows it: with its own slices.
MuonLayout own_layout(const MuonGroup& group, std::span<const PlannedUnit> units, ParameterUnit::Group of) {
  const auto sharers = static_cast<std::size_t>(group.sharing.sharers);
  const auto own = static_cast<std::size_t>(group.sharing.sharer_of(group.rank));
  MuonLayout layout{.sharing = group.sharing, .rank = group.rank, .slices = {}, .unit_sizes = {}, .unit_of = {}};
  layout.slices.resize(sharers);
  layout.unit_sizes.resize(sharers);
  for (const PlannedUnit& unit : units) {
    if (unit.group != of || !unit.trained()) continue;
    for (const MatrixSlice& slice : unit.matrices) {
      layout.slices[own].push_back(slice);
      layout.unit_of.push_back(layout.unit_sizes[own].size());
    }
    layout.unit_sizes[own].push_back(unit.size);
  }
  return layout;
}

}  // namespace

Axis muon_axis(const MeshRank& mesh_rank, ParameterUnit::Group group) {
  if (group != ParameterUnit::Group::expert) return Axis::data_tensor;
  if (mesh_rank.size(Axis::expert_tensor) == 1) return Axis::expert_data;
  return mesh_rank.size(Axis::expert_data) == 1 ? Axis::expert_tensor : Axis::data_tensor;
}

MuonPlan plan_muon(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> all_units) {
  MuonPlan plan;
  if (config.optim.rule != UpdateRuleName::muon) return plan;
  std::vector<PlannedUnit> units(all_units.begin(), all_units.end());
  std::ranges::stable_sort(units, {}, &PlannedUnit::layer);  // the order of a run, on which owners depend
  const DType type = working_type(config.run);
  std::vector<double> loads(static_cast<std::size_t>(mesh_rank.stage_ranks()));
  for (const ParameterUnit::Group of : muon_groups) {
    const MuonGroup group = muon_group(mesh_rank.shape, mesh_rank.world, mesh_rank.index, of, config.parallel.zero);
    const MuonLayout layout = own_layout(group, units, of);
    const std::vector<MatrixSlice>& slices =
        layout.slices[static_cast<std::size_t>(group.sharing.sharer_of(group.rank))];
    const std::vector<int> owners = group.choose_owners(slices, loads);
    const MuonLoad load = muon_load(layout, owners, type, muon_round_bytes);
    const double element = number(element_bytes(config));
    const Axis axis = muon_axis(mesh_rank, of);
    plan.traffic.add(mesh_rank, axis, Transfer::all_to_all, load.exchanged * element, 2 * load.rounds);
    plan.traffic.add(mesh_rank, axis, Transfer::all_gather, load.gathered * element, load.rounds);
    plan.peak_bytes = std::max(plan.peak_bytes, load.peak_bytes);
    plan.table_bytes += load.table_bytes;
  }
  plan.flops = *std::ranges::max_element(loads);
  return plan;
}

}  // namespace lyceum
