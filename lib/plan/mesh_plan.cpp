#include "plan/mesh_plan.h"

#include <algorithm>
#include <functional>
#include <span>

#include "model/expert_places.h"
#include "plan/rank_load.h"

namespace lyceum {

namespace {

double number(std::int64_t value) { return static_cast<double>(value); }

/// Parameters that a rank updates.
double updated_parameters(const Config& config, const RankMemory& memory) {
  return memory.optimizer / (element_bytes(config) == accumulator_bytes ? 2 : 3) / number(accumulator_bytes);
}

/// Seconds, or units of a million FLOPs.
double product_seconds(double flops, const std::optional<Cluster>& cluster) {
  return flops / (cluster ? cluster->flops : 1e6);
}

StageCosts costs_of(const Place& place, const StageLoad& load, const std::optional<Cluster>& cluster) {
  const double pass = product_seconds(load.flops.forward, cluster), again = product_seconds(load.flops.again, cluster);
  StageCosts costs{.forward = pass, .backward_input = again + pass, .backward_weight = pass};
  if (cluster) {
    costs.forward += seconds(*cluster, place, load.traffic.forward);
    costs.backward_input += seconds(*cluster, place, load.traffic.backward);
  }
  return costs;
}

double transfer_seconds(const PlanInput& input, const Cluster& cluster) {
  const Place place = Place::of(input.config.parallel, input.world, 0);
  Traffic one;
  one.add(place, Axis::pipeline, Transfer::send, boundary_bytes(input.config, place));
  return seconds(cluster, place, one);
}

/// A row's seconds, passes aside.
void add_step_ends(const MeshPlan& plan, const RankPlan& rank, const Cluster& cluster, double backward, double forward,
                   StepTime& time) {
  const Config& config = plan.config;
  const Place place = Place::of(config.parallel, plan.world, rank.rank);
  const double passes = number(micro_batches(config, plan.world));
  const int zero = config.parallel.zero;
  const double sums = seconds(cluster, place, rank.step.reductions),
               gathers = seconds(cluster, place, rank.step.gathers);
  const double behind_sums = cluster.overlap * (zero < 2 ? backward / passes : backward);
  const double behind_gathers = zero == 0 ? 0 : cluster.overlap * (zero < 3 ? forward / passes : forward);
  time.synchronising = std::max(0.0, sums - behind_sums) + std::max(0.0, gathers - behind_gathers);
  // AdamW reads and writes master and two moments, reads the gradient, writes the weight.
  const double bytes = 28.0 + (element_bytes(config) == accumulator_bytes ? 0 : 2);
  time.optimizer =
      updated_parameters(config, rank.memory) * bytes / cluster.memory_bytes + seconds(cluster, place, rank.step.end);
}

/// Seconds, or their like without a cluster, of all micro-batches of one row of the pipeline.
struct RowWork {
  double compute = 0, forward = 0, backward = 0;
  double busy() const { return forward + backward; }
};

/// Ranks of a row, one of which needs the most memory, but for what a cut leaves uneven: ranks differ by the experts
/// that they hold, and where these are alike, the first has the most of everything.
std::vector<int> unlike_ranks(const Config& config, int world, int row) {
  const int first = row * (world / config.parallel.pipeline);
  std::vector<int> ranks{first};
  const std::vector<std::int64_t> widths = expert_widths(config.moe);
  if (std::ranges::adjacent_find(widths, std::ranges::not_equal_to()) == widths.end()) return ranks;
  for (int e = 1; e < config.parallel.expert; ++e) ranks.push_back(first + e * config.parallel.expert_tensor);
  return ranks;
}

RowWork add_row(const PlanInput& input, const std::optional<Cluster>& cluster, int row, MeshPlan& plan) {
  const Config& config = input.config;
  std::optional<RankPlan> fullest;
  RankLoad load;
  for (const int rank : unlike_ranks(config, input.world, row)) {
    const Place place = Place::of(config.parallel, input.world, rank);
    RankLoad own = rank_load(input, place);
    RankPlan one = plan_place(input, place, rank, own);
    if (fullest && one.memory.total() <= fullest->memory.total()) continue;
    fullest = std::move(one);
    load = std::move(own);
  }
  const Place place = Place::of(config.parallel, input.world, fullest->rank);
  const double passes = number(micro_batches(config, input.world));
  plan.ranks.push_back(std::move(*fullest));
  RowWork work;
  for (std::size_t s = 0; s < load.stages.size(); ++s) {
    StageCosts& stage = plan.costs.stages[static_cast<std::size_t>(load.stages[s])];
    stage = costs_of(place, load.loads[s], cluster);
    work.compute += passes * product_seconds(load.loads[s].flops.all(), cluster);
    work.forward += passes * stage.forward;
    work.backward += passes * (stage.backward_input + stage.backward_weight);
  }
  return work;
}

StepTime step_time(const MeshPlan& plan, const Cluster& cluster, std::span<const RowWork> rows) {
  const RowWork& slowest = *std::ranges::max_element(rows, {}, &RowWork::busy);
  const double all = number(micro_batches(plan.config, plan.world));
  StepTime time;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    StepTime row;
    add_step_ends(plan, plan.ranks[r], cluster, rows[r].backward, rows[r].forward, row);
    time.synchronising = std::max(time.synchronising, row.synchronising);
    time.optimizer = std::max(time.optimizer, row.optimizer);
  }
  time.compute = slowest.compute;
  time.transfers = slowest.busy() - slowest.compute;
  time.bubble = plan.timeline.makespan() - slowest.busy() * plan.timeline.shape.microbatches / all;
  return time;
}

}  // namespace

MeshPlan plan_mesh(const Config& config, int world, const std::optional<Cluster>& cluster, const PlanLimits& limits) {
  const PlanInput input = plan_input(config, world, limits.microbatches);
  MeshPlan plan{.config = config, .world = world, .ranks = {}, .costs = {}, .timeline = {}, .time = {}};
  plan.costs.stages.resize(input.blocks.size());
  std::vector<RowWork> rows;
  for (int row = 0; row < config.parallel.pipeline; ++row) rows.push_back(add_row(input, cluster, row, plan));
  if (limits.memory > 0 && plan.peak_memory() > limits.memory) return plan;
  if (cluster) plan.costs.transfer = transfer_seconds(input, *cluster);
  plan.timeline = simulate(input.schedule, plan.costs);
  if (cluster) plan.time = step_time(plan, *cluster, rows);
  return plan;
}

namespace {

RankPlan plan_inference_rank(const Config& config, int world, int rank, std::span<const Range> blocks) {
  const Place place = Place::of(config.parallel, world, rank);
  RankPlan plan{.rank = rank, .stages = {}, .memory = {}, .passes = {}, .step = {}};
  for (int stage = place.index.pipeline; stage < std::ssize(blocks); stage += config.parallel.pipeline) {
    const Range& own = blocks[static_cast<std::size_t>(stage)];
    plan.stages.push_back(own);
    for (const PlannedUnit& unit : planned_units(config, place, own)) {
      plan.memory.weights += number(unit.size) * number(element_bytes(config));
    }
    const double head = own.end() == config.model.layers ? head_activations(config, place).kept : 0;
    plan.memory.activations = std::max(plan.memory.activations, std::max(head, 2 * row_activations(config, place)));
  }
  return plan;
}

}  // namespace

MeshPlan plan_inference(const Config& config, int world) {
  const std::vector<Range> blocks = stage_blocks(config, config.parallel.pipeline * config.parallel.virtual_stages);
  MeshPlan plan{.config = config, .world = world, .ranks = {}, .costs = {}, .timeline = {}, .time = {}};
  for (int row = 0; row < config.parallel.pipeline; ++row) {
    std::vector<RankPlan> ranks;
    for (const int rank : unlike_ranks(config, world, row)) {
      ranks.push_back(plan_inference_rank(config, world, rank, blocks));
    }
    plan.ranks.push_back(*std::ranges::max_element(ranks, {}, [](const RankPlan& one) { return one.memory.total(); }));
  }
  return plan;
}

Timeline drawn_timeline(const MeshPlan& plan, int most) {
  const PipelineShape& shape = plan.timeline.shape;
  const int wanted = std::max(1, most / shape.ranks) * shape.ranks;
  if (shape.microbatches <= wanted) return plan.timeline;
  return simulate(plan_input(plan.config, plan.world, wanted).schedule, plan.costs);
}

double MeshPlan::peak_memory() const {
  double most = 0;
  for (const RankPlan& rank : ranks) most = std::max(most, rank.memory.total());
  return most;
}

double MeshPlan::tokens_per_second() const {
  return time ? number(config.batch.global) * number(config.batch.seq_len) / time->total() : 0;
}

}  // namespace lyceum
