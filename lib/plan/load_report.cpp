#include "plan/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "config/check.h"
#include "io/text/table.h"
#include "model/routing/mixture.h"
#include "optim/expert_kinds.h"

namespace lyceum {

namespace {

/// True if a run of `plan` can be configured with this placement of its experts, and with these moves. With
/// moe.group_limit, another placement would change the model, and some experts cannot move.
bool is_possible(const MeshPlan& plan, PlacementKind placement, bool moved) {
  Config config = plan.config;
  config.parallel.placement = placement;
  config.parallel.replace_every = moved ? std::max<std::int64_t>(config.parallel.replace_every, 1) : 0;
  if (!contradictions(config, plan.world).empty()) return false;
  return !moved || can_move_experts(config, expert_kinds(config), config.parallel.expert);
}

/// Returns the most rows of a rank in any layer.
double most_rows(const Config& config, const MeshRank& mesh_rank, const PlacedLoad& load) {
  double most = 0;
  for (const LayerLoad& layer : load.layers()) {
    most = std::max(most, most_expert_rows(config, mesh_rank, mixture_of(config, layer.id), layer));
  }
  return most;
}

/// Completes a variant of `plan`. `load`: null for an even load.
LoadVariant evaluated(LoadVariant variant, const MeshPlan& plan, const std::optional<Cluster>& cluster,
                      const LoadProfile* load, MeshPlanCache& cache) {
  Config config = plan.config;
  config.parallel.placement = variant.placement;
  config.parallel.replace_every = variant.moved ? std::max<std::int64_t>(config.parallel.replace_every, 1) : 0;
  const PlacedLoad placed(config, load ? std::span<const ExpertLoad>(load->loads) : std::span<const ExpertLoad>());
  variant.imbalance = placed.imbalance();
  variant.most_rows = most_rows(config, MeshRank::of(config.parallel, plan.world, 0), placed);
  if (variant.planned && plan.time) variant.step_seconds = plan.time->total();
  if (cluster && !variant.step_seconds) {
    variant.step_seconds = plan_mesh(config, plan.world, cluster, {.cache = &cache}, load).time->total();
  }
  return variant;
}

}  // namespace

std::string LoadVariant::text() const {
  if (even) return "even load";
  return name_of(placement) + (moved ? ", moved" : "");
}

LoadComparison compare_loads(const MeshPlan& plan, const std::optional<Cluster>& cluster, const LoadProfile& load) {
  const ParallelConfig& parallel = plan.config.parallel;
  LoadComparison comparison{.description = load.description, .expert_ranks = parallel.expert, .variants = {}};
  if (parallel.expert == 1) return comparison;
  const bool moves = parallel.replace_every > 0;
  MeshPlanCache own;  // parts of a plan depend on the placement, so each has its cache
  comparison.variants.push_back(
      evaluated({.even = true, .placement = parallel.placement}, plan, cluster, nullptr, own));
  for (const PlacementKind placement : {PlacementKind::contiguous, PlacementKind::pairs, PlacementKind::cost}) {
    const bool configured = placement == parallel.placement;
    if (!configured && !is_possible(plan, placement, false)) continue;
    MeshPlanCache other;
    comparison.variants.push_back(evaluated({.placement = placement, .planned = configured && !moves}, plan, cluster,
                                            &load, configured ? own : other));
  }
  if (moves || is_possible(plan, parallel.placement, true)) {
    comparison.variants.push_back(
        evaluated({.placement = parallel.placement, .moved = true, .planned = moves}, plan, cluster, &load, own));
  }
  return comparison;
}

std::string load_report(const LoadComparison& comparison) {
  if (comparison.variants.empty()) {
    return fmt::format("\nload of experts: {}; one rank has all experts of a layer\n", comparison.description);
  }
  const std::vector<LoadVariant>& variants = comparison.variants;
  const bool timed = variants.front().step_seconds.has_value();
  double most = 0;
  for (const LoadVariant& variant : variants) most = std::max(most, variant.step_seconds.value_or(0));
  const bool milli = most < 1;
  std::vector<std::string> headings{"", ">busiest / mean", ">worst layer", ">most rows"};
  if (timed) headings.insert(headings.end(), {milli ? ">step ms" : ">step s", ">against even"});
  headings.emplace_back("");
  Table table(headings);
  for (const LoadVariant& variant : variants) {
    std::vector<std::string> row{variant.text(), fmt::format("{:.3f}", variant.imbalance.mean),
                                 fmt::format("{:.3f}", variant.imbalance.worst),
                                 fmt::format("{:.0f}", std::ceil(variant.most_rows - 1e-6))};
    if (timed) {
      const double seconds = *variant.step_seconds, even = *variants.front().step_seconds;
      row.push_back(fmt::format("{:.2f}", milli ? 1e3 * seconds : seconds));
      row.push_back(variant.even ? "" : fmt::format("{:+.1f} %", 100 * (seconds / even - 1)));
    }
    if (variant.planned) row.emplace_back("as planned above");
    table.add(std::move(row));
  }
  return fmt::format(
      "\nload of experts: {}\n{}busiest / mean: FLOPs of the busiest of {} expert ranks over their mean, mean of the "
      "layers; most rows: of a rank's experts in a layer, for one micro-batch\nthe memory above is for an even load: "
      "the activations of experts grow with their rows\n",
      comparison.description, table.text(), comparison.expert_ranks);
}

}  // namespace lyceum
