#include "plan/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/check.h"
#include "core/range.h"
#include "io/text/table.h"
#include "model/ffn/experts.h"
#include "model/routing/mixture.h"
#include "optim/expert_kinds.h"
#include "plan/text.h"

namespace lyceum {

namespace {

/// True if a run of `plan` can be configured as `variant`. With moe.group_limit, another placement would change the
/// model, and some experts cannot move.
bool is_possible(const MeshPlan& plan, const LoadVariant& variant) {
  Config config = plan.config;
  config.parallel.placement = variant.placement;
  config.parallel.replace_every = variant.moved ? std::max<std::int64_t>(config.parallel.replace_every, 1) : 0;
  config.parallel.replicas = variant.replicas;
  if (!contradictions(config, plan.world).empty()) return false;
  return !variant.moved || can_move_experts(config, expert_kinds(config), config.parallel.expert);
}

/// Returns the most rows of a rank in any layer.
double most_rows(const Config& config, const MeshRank& mesh_rank, const PlacedLoad& load) {
  double most = 0;
  for (const LayerLoad& layer : load.layers()) {
    most = std::max(most, most_expert_rows(config, mesh_rank, mixture_of(config, layer.id), layer));
  }
  return most;
}

/// Returns the number of layers with experts on the rank of the pipeline that has most of them.
std::int64_t most_layers_with_experts(const MeshPlan& plan) {
  std::int64_t most = 0;
  for (const RankPlan& rank : plan.ranks) {
    std::int64_t layers = 0;
    for (const Range& stage : rank.stages) {
      const std::int64_t end = parts_of(plan.config, stage).output ? all_blocks(plan.config) : stage.end();
      for (std::int64_t layer = stage.first; layer < end; ++layer) {
        layers += routed_experts(plan.config, layer).has_value() ? 1 : 0;
      }
    }
    most = std::max(most, layers);
  }
  return most;
}

/// Returns LoadVariant::replica_bytes for one spare slot per rank and layer.
double spare_slot_bytes(const MeshPlan& plan) {
  const Config& config = plan.config;
  std::int64_t widest = 0;
  for (const Mixture& mixture : mixtures_of(config)) {
    if (mixture.placed()) widest = std::max(widest, std::ranges::max(mixture.widths));
  }
  const std::int64_t elements = expert_column(config) * part_of(widest, 0, config.parallel.expert_tensor).count;
  return number(elements * (most_layers_with_experts(plan) * element_bytes(config) + accumulator_bytes));
}

/// Completes a variant of `plan`. `load`: null for an even load.
LoadVariant evaluated(LoadVariant variant, const MeshPlan& plan, const std::optional<Cluster>& cluster,
                      const LoadProfile* load, MeshPlanCache& cache) {
  Config config = plan.config;
  config.parallel.placement = variant.placement;
  config.parallel.replace_every = variant.moved ? std::max<std::int64_t>(config.parallel.replace_every, 1) : 0;
  config.parallel.replicas = variant.replicas;
  const PlacedLoad placed(config, load ? std::span<const ExpertLoad>(load->loads) : std::span<const ExpertLoad>());
  variant.imbalance = placed.imbalance();
  variant.most_rows = most_rows(config, MeshRank::of(config.parallel, plan.world, 0), placed);
  variant.replica_bytes = variant.replicas * spare_slot_bytes(plan);
  if (variant.planned && plan.time) variant.step_seconds = plan.time->total();
  if (cluster && !variant.step_seconds) {
    variant.step_seconds = plan_mesh(config, plan.world, cluster, {.cache = &cache}, load).time->total();
  }
  return variant;
}

}  // namespace

std::string LoadVariant::text() const {
  if (even) return "even load";
  std::string text = name_of(placement) + (moved ? ", moved" : "");
  if (replicas > 0) text += ", " + count_text(replicas, "replica");
  return text;
}

LoadComparison compare_loads(const MeshPlan& plan, const std::optional<Cluster>& cluster, const LoadProfile& load) {
  const ParallelConfig& parallel = plan.config.parallel;
  LoadComparison comparison{.description = load.description,
                            .expert_ranks = parallel.expert,
                            .bounded = parallel.expert_exchange == ExpertExchange::bounded,
                            .variants = {}};
  if (parallel.expert == 1) return comparison;
  const LoadVariant configured{
      .placement = parallel.placement, .moved = parallel.replace_every > 0, .replicas = parallel.replicas};
  MeshPlanCache own;  // parts of a plan depend on the placement, so each has its cache
  LoadVariant even = configured;
  even.even = true;
  even.moved = false;
  comparison.variants.push_back(evaluated(even, plan, cluster, nullptr, own));
  const auto add = [&](LoadVariant variant) {
    variant.planned = variant.placement == configured.placement && variant.moved == configured.moved &&
                      variant.replicas == configured.replicas;
    if (!variant.planned && !is_possible(plan, variant)) return;
    MeshPlanCache other;
    const bool shares_parts = variant.placement == configured.placement && variant.replicas == configured.replicas;
    comparison.variants.push_back(evaluated(variant, plan, cluster, &load, shares_parts ? own : other));
  };
  for (const PlacementKind placement : {PlacementKind::contiguous, PlacementKind::pairs, PlacementKind::cost}) {
    add({.placement = placement, .moved = false, .replicas = configured.replicas});
  }
  add({.placement = configured.placement, .moved = true, .replicas = configured.replicas});
  for (const int replicas : {0, 1, 2}) {
    if (replicas == configured.replicas) continue;
    add({.placement = configured.placement, .moved = configured.moved, .replicas = replicas});
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
  std::vector<std::string> headings{"", ">busiest / mean", ">worst layer", ">most rows", ">replicas"};
  if (timed) headings.insert(headings.end(), {milli ? ">step ms" : ">step s", ">against even"});
  headings.emplace_back("");
  Table table(headings);
  for (const LoadVariant& variant : variants) {
    std::vector<std::string> row{
        variant.text(), fmt::format("{:.3f}", variant.imbalance.mean), fmt::format("{:.3f}", variant.imbalance.worst),
        fmt::format("{:.0f}", std::ceil(variant.most_rows - 1e-6)), bytes_text(variant.replica_bytes)};
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
      "layers; most rows: of a rank's experts in a layer, for one micro-batch; "
      "replicas: memory of the spare slots of a rank; the transfer of their weights takes additional time\n{}",
      comparison.description, table.text(), comparison.expert_ranks,
      comparison.bounded ? ""
                         : "the memory above is for an even load: the activations of experts grow with their rows\n");
}

}  // namespace lyceum
