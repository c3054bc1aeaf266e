#include "plan/mesh_plan.h"

#include <algorithm>
#include <functional>
#include <span>

#include "model/routing/expert_placements.h"
#include "plan/nccl_memory.h"
#include "plan/process_memory.h"
#include "plan/rank_load.h"

namespace lyceum {

namespace {

/// Returns the duration of matrix products: in seconds, or in millions of FLOPs without a cluster.
double product_seconds(double flops, const std::optional<Cluster>& cluster) {
  return flops / (cluster ? cluster->flops : 1e6);
}

/// Returns the part of `traffic` that moves tokens to experts and back. If they travel by hosts, only the hop between
/// hosts.
Traffic token_exchanges(const MeshRank& mesh_rank, const Traffic& traffic) {
  Traffic exchanges;
  const Axis axis = mesh_rank.size(Axis::expert_across) > 1 ? Axis::expert_across : Axis::expert;
  const Volume& volume = traffic.of(axis, Transfer::all_to_all);
  exchanges.add(mesh_rank, axis, Transfer::all_to_all, volume.bytes, volume.calls);
  return exchanges;
}

/// Returns the seconds of transfers of one micro-batch, forward and backward together, that run beside computation, as
/// parallel.overlap says. A sparse layer has two exchanges in each direction. With `shared`, the shared experts run
/// beside the first of the forward pass and the last of the backward pass. With `batches`, each exchange also runs
/// beside one turn of another micro-batch, which computes routed experts or the rest of a block. Only the first forward
/// and the last backward pass of a step are alone. Recomputation hides nothing.
double hidden_seconds(const Config& config, const MeshRank& mesh_rank, const StageLoad& load, const Cluster& cluster) {
  const ParallelConfig& parallel = config.parallel;
  if (cluster.overlap == 0 || parallel.overlap == Overlap::none || parallel.expert == 1) return 0;
  const auto exchange = [&](const Traffic& traffic) {
    return seconds(cluster, mesh_rank, token_exchanges(mesh_rank, traffic)) / 2;
  };
  // Backward sends more if it recomputes, else less, since only forward sends gates and indices.
  const double out = exchange(load.awaited.forward), back = std::min(out, exchange(load.awaited.backward));
  const double shared = load.experts.shared / cluster.flops, routed = load.experts.routed / cluster.flops;
  const double around = load.experts.around / cluster.flops;
  // Backward takes twice as long as forward, unless gradients of weights are computed after all gradients of inputs.
  const bool later = parallel.schedule == ScheduleKind::zero_bubble || config.model.recompute == Recompute::full;
  const double back_experts = later ? 1 : 2;
  const double by_shared = std::min(out, shared) + std::min(back, back_experts * shared);
  const double passes = number(micro_batches(config, mesh_rank.world));
  if (!overlaps_batches(parallel) || passes < 2) return by_shared;
  const double by_turns = std::min(back, around) + std::min(out, shared + back_experts * routed) +
                          std::min(back, back_experts * shared + routed) +
                          std::min(out, 2 * around + (2 - back_experts) * (shared + routed));
  return (by_turns * (passes - 1) + by_shared) / passes;
}

StageCosts costs_of(const Config& config, const MeshRank& mesh_rank, const StageLoad& load,
                    const std::optional<Cluster>& cluster) {
  StageCosts costs{.forward = product_seconds(load.flops.forward, cluster),
                   .backward_input = product_seconds(load.flops.backward_input(), cluster),
                   .backward_weight = product_seconds(load.flops.backward_weight(), cluster)};
  if (cluster) {
    const double hidden = hidden_seconds(config, mesh_rank, load, *cluster);
    costs.forward += seconds(*cluster, mesh_rank, load.awaited.forward) - hidden / 2;
    costs.backward_input += seconds(*cluster, mesh_rank, load.awaited.backward) - hidden / 2;
  }
  return costs;
}

double transfer_seconds(const PlanInput& input, const Cluster& cluster) {
  const MeshRank mesh_rank = MeshRank::of(input.config.parallel, input.world, 0);
  Traffic one;
  one.add(mesh_rank, Axis::pipeline, Transfer::send, boundary_bytes(input.config, mesh_rank));
  return seconds(cluster, mesh_rank, one);
}

/// Durations of one rank's work over all micro-batches: in seconds, or in millions of FLOPs without a cluster.
struct RankWork {
  std::vector<StageCosts> costs;  // per micro-batch, for each stage of the rank
  double compute = 0, forward = 0, backward = 0;
  double synchronising = 0, optimizer = 0, muon = 0;  // only with a cluster
  double busy() const { return forward + backward; }
};

RankWork work_of(const Config& config, const MeshRank& mesh_rank, const RankLoad& load,
                 const std::optional<Cluster>& cluster) {
  const double passes = number(micro_batches(config, mesh_rank.world));
  RankWork work;
  for (const StageLoad& stage : load.loads) {
    const StageCosts costs = costs_of(config, mesh_rank, stage, cluster);
    work.costs.push_back(costs);
    work.compute += passes * product_seconds(stage.flops.all(), cluster);
    work.forward += passes * costs.forward;
    work.backward += passes * (costs.backward_input + costs.backward_weight);
  }
  return work;
}

/// Adds the time of reductions, gathers and the optimizer, which are not part of passes.
void add_step_end(const Config& config, const MeshRank& mesh_rank, const RankPlan& rank, const Cluster& cluster,
                  RankWork& work) {
  const double passes = number(micro_batches(config, mesh_rank.world));
  const int zero = config.parallel.zero;
  const double sums = seconds(cluster, mesh_rank, rank.step.reductions),
               gathers = seconds(cluster, mesh_rank, rank.step.gathers);
  // Seconds of passes behind which transfers can be hidden: ZeRO 0 and 1 reduce in the last backward pass and gather in
  // the first forward pass of a step, 2 reduces in every backward pass, and 3 also gathers in every pass.
  const double once = 1 / passes;
  const double forward = cluster.overlap * work.forward * (zero < 3 ? once : 1);
  const double backward = cluster.overlap * work.backward * (zero < 2 ? once : 1);
  const auto exposed = [](double transfers, double hidden) { return std::max(0.0, transfers - hidden); };
  const double in_backward = zero == 3 ? gathers / 2 : 0;
  // ZeRO 0 gathers summed gradients, which nothing hides.
  work.synchronising = exposed(sums + in_backward, backward) + exposed(gathers - in_backward, zero == 0 ? 0 : forward);
  work.optimizer = rank.memory.update_bytes / cluster.memory_bytes + seconds(cluster, mesh_rank, rank.step.end);
  work.muon = rank.muon_flops / cluster.flops + seconds(cluster, mesh_rank, rank.step.matrices);
}

/// Adds the rank of the row that needs the most memory to the plan, and the costs of the row's stages. Returns the work
/// of the slowest rank: the ranks of a row wait for each other in every layer whose tokens go to experts. `kinds`: one
/// entry per rank of candidate_worst_ranks(), shared by all rows.
RankWork plan_row(const PlanInput& input, const std::optional<Cluster>& cluster, int row,
                  std::vector<BlockKinds>& kinds, MeshPlanCache& cache, MeshPlan& plan) {
  const Config& config = input.config;
  std::optional<RankPlan> fullest;
  const bool counts_nccl = config.parallel.nccl_channels > 0 && sends_by_nccl(config, cluster.has_value());
  RankWork slowest;
  double synchronising = 0, optimizer = 0, muon = 0;
  const std::vector<int> ranks = candidate_worst_ranks(config, input.world, row);
  kinds.resize(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int rank = ranks[r];
    const MeshRank mesh_rank = MeshRank::of(config.parallel, input.world, rank);
    const RankLoad load = rank_load(input, mesh_rank, kinds[r], cache.parts);
    RankPlan one = plan_loaded_rank(input, mesh_rank, rank, load);
    RankWork work = work_of(config, mesh_rank, load, cluster);
    if (cluster) add_step_end(config, mesh_rank, one, *cluster, work);
    synchronising = std::max(synchronising, work.synchronising);
    optimizer = std::max(optimizer, work.optimizer);
    muon = std::max(muon, work.muon);
    if (slowest.costs.empty() || work.busy() > slowest.busy()) slowest = std::move(work);
    if (counts_nccl) {
      one.memory.nccl = nccl_bytes(nccl_communicators(config, mesh_rank, one, cache.groups.of(config, input.world, one),
                                                      config.parallel.nccl_channels));
    }
    if (!cluster) one.memory.process = process_bytes(config, input.world, one.memory, false);
    if (!fullest || one.memory.resident() > fullest->memory.resident()) fullest = std::move(one);
  }
  slowest.synchronising = synchronising;
  slowest.optimizer = optimizer;
  slowest.muon = muon;
  for (std::size_t s = 0; s < slowest.costs.size(); ++s) {
    const std::size_t stage = s * static_cast<std::size_t>(config.parallel.pipeline) + static_cast<std::size_t>(row);
    plan.costs.stages[stage] = slowest.costs[s];
  }
  plan.ranks.push_back(std::move(*fullest));
  return slowest;
}

StepTime step_time(const MeshPlan& plan, std::span<const RankWork> rows) {
  const RankWork& slowest = *std::ranges::max_element(rows, {}, &RankWork::busy);
  const double all = number(micro_batches(plan.config, plan.world));
  StepTime time{.compute = slowest.compute};
  for (const RankWork& row : rows) {
    time.synchronising = std::max(time.synchronising, row.synchronising);
    time.optimizer = std::max(time.optimizer, row.optimizer);
    time.muon = std::max(time.muon, row.muon);
  }
  // The two numbers were summed in different orders: a rounding error counts as zero.
  const auto difference = [](double whole, double part) { return whole - part > 1e-9 * whole ? whole - part : 0; };
  time.transfers = difference(slowest.busy(), slowest.compute);
  time.bubble = difference(plan.timeline.makespan(), slowest.busy() * plan.timeline.shape.microbatches / all);
  return time;
}

}  // namespace

MeshPlan plan_mesh(const Config& config, int world, const std::optional<Cluster>& cluster, const PlanLimits& limits,
                   const LoadProfile* load) {
  MeshPlanCache own;
  MeshPlanCache& cache = limits.cache ? *limits.cache : own;
  if (load && limits.memory > 0) {  // a plan with the load of each layer takes longer, and needs the same memory
    MeshPlan even = plan_mesh(config, world, cluster, limits);
    if (even.peak_memory() > limits.memory) return even;
  }
  PlanInput input = plan_input(config, world, limits.microbatches, &cache.cuts);
  if (load) input.load = &cache.loads.of(config, load->loads);
  MeshPlan plan{.config = config, .world = world, .ranks = {}, .costs = {}, .timeline = {}, .time = {}};
  plan.costs.stages.resize(input.blocks.size());
  std::vector<RankWork> rows;
  std::vector<BlockKinds> kinds;
  for (int row = 0; row < config.parallel.pipeline; ++row) {
    rows.push_back(plan_row(input, cluster, row, kinds, cache, plan));
    if (!limits.all_rows && limits.memory > 0 && plan.ranks.back().memory.total() > limits.memory) return plan;
  }
  if (limits.memory > 0 && plan.peak_memory() > limits.memory) return plan;
  if (cluster) plan.costs.transfer = transfer_seconds(input, *cluster);
  plan.timeline = simulate(input.schedule, plan.costs);
  if (cluster) plan.time = step_time(plan, rows);
  return plan;
}

Timeline drawn_timeline(const MeshPlan& plan, int most) {
  const PipelineShape& shape = plan.timeline.shape;
  const int wanted = std::max(1, most / shape.ranks) * shape.ranks;
  if (shape.microbatches <= wanted) return plan.timeline;
  return simulate(plan_input(plan.config, plan.world, wanted).schedule, plan.costs);
}

const RankPlan& MeshPlan::fullest() const {
  return *std::ranges::max_element(ranks, {}, [](const RankPlan& rank) { return rank.memory.resident(); });
}

double MeshPlan::peak_without_nccl() const {
  double most = 0;
  for (const RankPlan& rank : ranks) most = std::max(most, rank.memory.resident() - rank.memory.nccl);
  return most;
}

double MeshPlan::tokens_per_second() const {
  return time ? number(config.batch.global) * number(config.batch.seq_len) / time->total() : 0;
}

}  // namespace lyceum
