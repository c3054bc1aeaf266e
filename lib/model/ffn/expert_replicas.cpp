#include "model/ffn/expert_replicas.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <variant>

namespace lyceum {

namespace {

/// Returns the number of consecutive expert ranks on each host; 0 if hosts have different numbers, or parts of them.
int expert_ranks_per_host(const ParallelConfig& parallel) {
  const int ranks = parallel.host_ranks / parallel.expert_tensor;
  const bool whole = ranks * parallel.expert_tensor == parallel.host_ranks;
  return whole && ranks > 1 && parallel.expert % ranks == 0 ? ranks : 0;
}

/// Returns the FLOPs that the shares of one source move between ranks, as MovedFlops::of_ranks.
std::vector<std::int64_t> moved_by(std::span<const ReplicaShare> shares, const ReplicaProblem& problem) {
  std::vector<std::int64_t> moved(static_cast<std::size_t>(problem.ranks()));
  for (const ReplicaShare& share : shares) {
    if (share.slot < 0) continue;
    const auto expert = static_cast<std::size_t>(share.expert);
    const std::int64_t flops = share.count * problem.costs[expert];
    moved[static_cast<std::size_t>(problem.placement.owner[expert])] -= flops;
    moved[static_cast<std::size_t>(share.slot / problem.slots)] += flops;
  }
  return moved;
}

/// Returns no replicas for each of a router's choices.
ReplicaCounts no_replicas(std::int64_t choices) {
  const auto experts = static_cast<std::size_t>(choices);
  return {.replicas = std::vector<std::int64_t>(experts), .tokens = std::vector<std::int64_t>(experts)};
}

/// Adds the replicas of a plan in the spare slots of one rank.
void add_replicas(const ReplicaProblem& problem, const ReplicaPlan& plan, int rank, ReplicaCounts& counts) {
  for (int s = 0; s < problem.slots; ++s) {
    const auto slot = static_cast<std::size_t>(rank * problem.slots + s);
    if (plan.experts[slot] < 0) continue;
    const auto expert = static_cast<std::size_t>(plan.experts[slot]);
    ++counts.replicas[expert];
    counts.tokens[expert] += plan.rows[slot];
    counts.kept += problem.held[slot] == plan.experts[slot] ? 1 : 0;
  }
}

}  // namespace

int most_lent_replicas(int replicas, int ranks) {
  constexpr int per_spare_slot = 8;
  return std::min(replicas * per_spare_slot, replicas * (ranks - 1));
}

ExpertReplicas::ExpertReplicas(const Config& config, const Mixture& mixture, const Mesh& mesh, const Stream& stream,
                               DType type, const SpareSlots::Experts& experts, const Placement& placement,
                               const ExpertRoute& route)
    : mixture_(&mixture),
      mesh_(&mesh),
      placement_(&placement),
      originals_(experts.originals),
      slots_(config.parallel.replicas),
      host_ranks_(expert_ranks_per_host(config.parallel)),
      turns_(overlaps_batches(config.parallel)),
      in_flight_(turns_ || config.parallel.pipeline > 1 ||
                 config.parallel.schedule != ScheduleKind::one_forward_one_backward),
      own_(experts.own.size()),
      spare_(std::make_shared<SpareSlots>(stream, type, mesh.expert, experts, slots_,
                                          most_lent_replicas(slots_, mesh.expert.size()))),
      route_(with_spare_slots(route, mesh.expert_hops(), slots_)) {}

std::shared_ptr<const StepReplicas::Choice> ExpertReplicas::choose(const Stream& stream,
                                                                   const NumberedChoices& choices) const {
  const int rank = mesh_->expert.rank();
  std::vector<std::int32_t> rows = rows_of_sources(mesh_->expert, mesh_->expert_tensor, choices.rows(stream));
  const bool rehearsed = std::holds_alternative<RehearsalStream>(stream);
  if (rehearsed) {
    const std::int64_t experts = placement_->experts();
    rows = rehearsed_rows(choices.index.size(), mixture_->choices(), experts, std::ssize(rows) / experts);
  }
  ReplicaProblem problem = spare_->problem(*placement_, rows, host_ranks_);
  const std::vector<std::int64_t> totals = problem.rows_of_experts(problem.sources());
  problem.totals = totals;
  ReplicaPlan plan = plan_replicas(problem);
  const std::int64_t source = std::int64_t{rank} * mesh_->expert_tensor.size() + mesh_->expert_tensor.rank();
  auto choice =
      std::make_shared<StepReplicas::Choice>(StepReplicas::Choice{.plan = {},
                                                                  .shares = shares_of_source(problem, plan, source),
                                                                  .rows = rows_on_rank(problem, plan, rank),
                                                                  .rehearsed = std::nullopt,
                                                                  .replicas = no_replicas(mixture_->choices()),
                                                                  .moved = {}});
  if (mesh_->expert_tensor.rank() == 0) add_replicas(problem, plan, rank, choice->replicas);
  choice->moved = moved_by(choice->shares, problem);
  if (rehearsed) {
    choice->rehearsed = with_planned_rows(route_, plan, choices.index.shape()[0] * problem.sources());
  }
  choice->plan = std::move(plan);
  return choice;
}

ExpertReplicas::Routing ExpertReplicas::prepare(const Tape& tape, const Pass& pass, const Tensor& index) {
  const Stream& stream = tape.stream();
  const NumberedChoices choices = numbered(stream, index, mixture_->weighted(), mixture_->choices());
  std::shared_ptr<const StepReplicas::Choice>& choice = pass.batch.replicas->at(mixture_->id, pass.batch.pass);
  if (!choice) choice = choose(stream, choices);
  if (UnitMemory* const memory = originals_->memory()) {
    memory->need_values(*originals_, tape.replaying() ? UnitMemory::Pass::backward : UnitMemory::Pass::forward);
  }
  spare_->send(stream, choice->plan, *placement_);
  return {.index = divided(stream, choices, choice->shares, mixture_->choices()),
          .plan = {choice, &choice->plan},
          .route = choice->rehearsed ? &*choice->rehearsed : &route_,
          .rows = choice->rows};
}

Variable ExpertReplicas::run(Tape& tape, const ActivationFunction& activation, const Routing& routing,
                             const ExpertRows& rows, const Variable& x, const Variable& gates) const {
  auto bank = std::make_shared<std::vector<ExpertBank::Expert>>(spare_->bank(*routing.plan));
  return tape.apply(ReplicatedBank{.bank = {{activation, std::move(bank), rows.segments}, rows.copies},
                                   .slots = spare_,
                                   .plan = routing.plan,
                                   .placement = placement_,
                                   .again_in_forward = turns_,
                                   .again_in_backward = in_flight_,
                                   .own = own_},
                    x, gates);
}

ReplicaTransfers ExpertReplicas::transfers() const {
  return {.received = mesh_->expert_tensor.rank() == 0 ? spare_->newly_received() : 0,
          .bytes = spare_->new_bytes_of_weights()};
}

void ExpertReplicas::placement_changed(const ExpertRoute& route) {
  spare_->forget();
  route_ = with_spare_slots(route, mesh_->expert_hops(), slots_);
}

}  // namespace lyceum
