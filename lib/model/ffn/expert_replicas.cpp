#include "model/ffn/expert_replicas.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lyceum {

namespace {

/// Returns the FLOPs of the busiest rank over the mean; 1 if there are none.
double imbalance(const ReplicaProblem& problem, const ReplicaPlan& plan) {
  const std::vector<std::int64_t> loads = rank_loads(problem, plan);
  const auto mean = static_cast<double>(std::reduce(loads.begin(), loads.end())) / static_cast<double>(loads.size());
  return mean > 0 ? static_cast<double>(std::ranges::max(loads)) / mean : 1;
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
      turns_(overlaps_batches(config.parallel)),
      in_flight_(turns_ || config.parallel.pipeline > 1 ||
                 config.parallel.schedule != ScheduleKind::one_forward_one_backward),
      own_(experts.own.size()),
      widths_(experts.widths.begin(), experts.widths.end()),
      spare_(std::make_shared<SpareSlots>(stream, type, mesh.expert, experts, slots_,
                                          most_lent_replicas(slots_, mesh.expert.size()))),
      route_(with_spare_slots(route, mesh.expert_hops(), slots_)) {}

std::shared_ptr<const StepReplicas::Choice> ExpertReplicas::choose(const Stream& stream,
                                                                   const NumberedChoices& choices) const {
  const std::vector<std::int64_t> rows = rows_of_sources(mesh_->expert, mesh_->expert_tensor, choices.rows(stream));
  const ReplicaProblem problem{.placement = *placement_,
                               .rows = rows,
                               .costs = widths_,
                               .slots = slots_,
                               .held = spare_->held(),
                               .ranks_per_host = mesh_->expert_hosts ? mesh_->expert_hosts->within.size() : 0,
                               .most_lent = most_lent_replicas(slots_, mesh_->expert.size())};
  ReplicaPlan plan = plan_replicas(problem);
  const std::int64_t source =
      std::int64_t{mesh_->expert.rank()} * mesh_->expert_tensor.size() + mesh_->expert_tensor.rank();
  const ReplicaPlan none{.experts = std::vector<std::int32_t>(plan.experts.size(), -1), .rows = plan.rows};
  return std::make_shared<StepReplicas::Choice>(StepReplicas::Choice{
      .plan = plan,
      .shares = shares_of_source(problem, plan, source),
      .route =
          with_planned_rows(route_, problem, plan, mesh_->expert.rank(), choices.index.shape()[0] * problem.sources()),
      .imbalance_before = imbalance(problem, none),
      .imbalance = imbalance(problem, plan)});
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
          .route = &choice->route};
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

void ExpertReplicas::placement_changed(const ExpertRoute& route) {
  spare_->forget();
  route_ = with_spare_slots(route, mesh_->expert_hops(), slots_);
}

}  // namespace lyceum
