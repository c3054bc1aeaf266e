#include "parallel/expert/spare_slots.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {

namespace {

ReplicaExchange::Limits limits_of(const SpareSlots::Experts& experts, int slots, int most_lent) {
  return {.elements = std::ranges::max(experts.elements), .held = slots, .lent = most_lent};
}

}  // namespace

SpareSlots::SpareSlots(const Stream& stream, DType type, const ProcessGroup& group, const Experts& experts, int slots,
                       int most_lent)
    : group_(&group),
      originals_(experts.originals),
      own_(experts.own),
      widths_(experts.widths.begin(), experts.widths.end()),
      elements_(experts.elements.begin(), experts.elements.end()),
      slots_(static_cast<std::size_t>(slots)),
      most_lent_(most_lent),
      largest_(std::ranges::max(experts.elements)),
      values_(Tensor::zeros(stream, type, {slots * largest_}, MemoryKind::buffers)),
      held_(static_cast<std::size_t>(group.size()) * slots_, -1),
      weights_(group, limits_of(experts, slots, most_lent)),
      gradient_exchange_(group, limits_of(experts, slots, most_lent)) {
  require(slots > 0 && most_lent > 0, "{} spare slots and {} replicas per owner are too few", slots, most_lent);
  for (const std::int64_t width : widths_) {
    const auto [found, added] = replicas_.try_emplace(width);
    for (std::int64_t slot = 0; added && slot < slots; ++slot) {
      auto unit = std::make_unique<ParameterUnit>("replica", ParameterUnit::Group::expert);
      const ExpertBank::Expert expert = experts.make(width, *unit);
      unit->set_values(values_.view(slot * largest_, {unit->size()}));
      found->second.push_back({std::move(unit), expert});
    }
  }
}

ReplicaProblem SpareSlots::problem(const Placement& placement, std::span<const std::int32_t> rows,
                                   int ranks_per_host) const {
  return {.placement = placement,
          .rows = rows,
          .costs = widths_,
          .slots = static_cast<int>(slots_),
          .held = held_,
          .ranks_per_host = ranks_per_host,
          .most_lent = most_lent_};
}

void SpareSlots::forget() {
  require(!weights_.in_flight() && !gradient_exchange_.in_flight(),
          "replicas are in flight while their experts change");
  std::ranges::fill(held_, -1);
  received_ = 0;
  bytes_before_ = weights_.bytes_sent();
}

const SpareSlots::Replica& SpareSlots::replica(std::int32_t expert, std::size_t slot) const {
  return replicas_.at(widths_[static_cast<std::size_t>(expert)])[slot];
}

const SpareSlots::Replica& SpareSlots::in_slot(const ReplicaPlan& plan, std::size_t slot) const {
  const std::int32_t expert = expert_in(plan, slot);
  return expert >= 0 ? replica(expert, slot) : replicas_.begin()->second[slot];
}

std::int32_t SpareSlots::expert_in(const ReplicaPlan& plan, std::size_t slot) const {
  return plan.experts[static_cast<std::size_t>(group_->rank()) * slots_ + slot];
}

std::vector<ReplicaLink> SpareSlots::links(const ReplicaPlan& plan, const Placement& placement, bool missing) const {
  std::map<std::int32_t, std::int64_t> originals;  // first element of each of this rank's experts in their unit
  std::int64_t next = 0;
  for (const std::int32_t expert : placement.experts_of(group_->rank())) {
    originals[expert] = next;
    next += elements_[static_cast<std::size_t>(expert)];
  }
  std::vector<ReplicaLink> links;
  for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
    const std::int32_t expert = plan.experts[slot];
    if (expert < 0 || (missing && held_[slot] == expert)) continue;
    const auto own = originals.find(expert);
    links.push_back({.owner = placement.owner[static_cast<std::size_t>(expert)],
                     .holder = static_cast<int>(slot / slots_),
                     .original = own == originals.end() ? 0 : own->second,
                     .replica = static_cast<std::int64_t>(slot % slots_) * largest_,
                     .elements = elements_[static_cast<std::size_t>(expert)]});
  }
  return links;
}

void SpareSlots::start(const Stream& stream, const ReplicaPlan& plan, const Placement& placement) {
  std::vector<ReplicaLink> missing = links(plan, placement, true);
  received_ += std::ranges::count(missing, group_->rank(), &ReplicaLink::holder);
  weights_.start(stream, std::move(missing), ReplicaExchange::Direction::to_replicas, originals_->values());
  for (std::size_t slot = 0; slot < held_.size(); ++slot) {
    if (plan.experts[slot] >= 0) held_[slot] = plan.experts[slot];
  }
}

void SpareSlots::send(const Stream& stream, const ReplicaPlan& plan, const Placement& placement) {
  if (weights_.in_flight()) weights_.finish(stream, values_);
  start(stream, plan, placement);
}

void SpareSlots::await(const Stream& stream, const ReplicaPlan& plan, const Placement& placement, bool again) {
  if (weights_.in_flight()) weights_.finish(stream, values_);
  if (again) {
    start(stream, plan, placement);
    weights_.finish(stream, values_);
  }
  require(links(plan, placement, true).empty(), "a spare slot of {} does not hold its replica", originals_->name());
}

std::vector<ExpertBank::Expert> SpareSlots::bank(const ReplicaPlan& plan) const {
  std::vector<ExpertBank::Expert> bank = own_;
  for (std::size_t slot = 0; slot < slots_; ++slot) bank.push_back(in_slot(plan, slot).expert);
  return bank;
}

void SpareSlots::begin_gradients(const Stream& stream, const ReplicaPlan& plan) {
  require(!gradient_exchange_.in_flight(), "gradients of replicas of {} are computed while others return",
          originals_->name());
  gradients_ = Tensor::empty(stream, accumulator_of(values_.dtype()), values_.shape());
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    ParameterUnit& unit = *in_slot(plan, slot).unit;
    const Tensor gradient = gradients_.view(static_cast<std::int64_t>(slot) * largest_, {unit.size()});
    if (expert_in(plan, slot) >= 0) clear(stream, gradient);  // those of unused slots are never read
    unit.set_gradients(gradient);
  }
}

void SpareSlots::return_gradients(const Stream& stream, const ReplicaPlan& plan, const Placement& placement) {
  gradient_exchange_.start(stream, links(plan, placement, false), ReplicaExchange::Direction::to_originals, gradients_);
}

void SpareSlots::finish_gradients(const Stream& stream) {
  gradient_exchange_.finish(stream, originals_->gradients());
  for (auto& [width, slots] : replicas_) {
    for (Replica& each : slots) each.unit->set_gradients({});
  }
  gradients_ = {};
}

}  // namespace lyceum
