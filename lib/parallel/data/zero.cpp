#include "parallel/data/zero.h"

#include <algorithm>

#include "autograd/adapters.h"

namespace lyceum {
Zero::Zero(std::span<ParameterUnit* const> units, const Mesh& mesh, const Stream& stream, const Options& options)
    : stream_(stream), overlap_(options.overlap), one_order_(asynchronous(stream)) {
  require(options.micro_batches > 0, "a step cannot have {} micro-batches", options.micro_batches);
  for (const ParameterUnit::Group group : parameter_groups) {
    if (group == ParameterUnit::Group::expert_replicated &&
        std::ranges::none_of(units, [&](const ParameterUnit* unit) { return unit->group() == group; })) {
      continue;  // only adapters of experts that are divided have such units
    }
    groups_.emplace(group, new_copy_groups(mesh, group));
  }
  const ShardedUnit::Plan plan{options.stage, options.micro_batches, options.type};
  for (ParameterUnit* unit : units) {
    if (unit->role() == ParameterUnit::Role::buffer) {
      unit->allocate(stream, options.type, false);
      buffers_.push_back(unit);
      continue;
    }
    units_.push_back(std::make_unique<ShardedUnit>(*unit, groups_.at(unit->group()), plan, stream));
    by_unit_[unit] = units_.back().get();
    layers_[unit->layer()].push_back(units_.back().get());
    unit->set_memory(this);
  }
}

Zero::~Zero() {
  for (const auto& unit : units_) unit->unit().set_memory(nullptr);
  for (ParameterUnit* unit : buffers_) unit->set_values({});
}

void Zero::initialize(std::uint64_t seed) {
  for (const auto& unit : units_) unit->initialize(seed);
  for (ParameterUnit* unit : buffers_) unit->initialize(stream_, seed);
}

std::vector<UnitShare> Zero::shares() const {
  std::vector<UnitShare> all;
  for (const auto& unit : units_) all.push_back(unit->share());
  for (const ParameterUnit* unit : buffers_) {
    const ProcessGroup& copies = groups_.at(unit->group()).reductions;
    all.push_back({.unit = unit,
                   .copies = &copies,
                   .owned = cut_evenly(unit->size(), copies.size(), copies.rank()),
                   .updated = {0, unit->size()},
                   .size = unit->size(),
                   .sharded = false,
                   .values = unit->values(),
                   .gradients = {}});
  }
  std::ranges::stable_partition(all, [](const UnitShare& share) { return share.unit->trained(); });
  return all;
}

void Zero::set_micro_batches(std::int64_t micro_batches) {
  require(micro_batches > 0, "a step cannot have {} micro-batches", micro_batches);
  for (const auto& unit : units_) unit->set_micro_batches(micro_batches);
}

void Zero::progress() {
  // Testing one transfer advances all of them, so only the oldest one is tested.
  for (const auto& unit : units_) {
    if (!unit->poll_values()) break;
  }
  while (!reducing_.empty() && !at_fixed_point(*reducing_.front()) && reducing_.front()->poll_reduction()) {
    reducing_.front()->finish_reduction();
    reducing_.pop_front();
  }
}

void Zero::need_values(ParameterUnit& unit, Pass pass) {
  if (unit.layer() != used_layer_ || pass != pass_) enter(unit.layer(), pass);
  ShardedUnit& sharded = *by_unit_.at(&unit);
  if (!sharded.has_effective_values()) {
    for (ShardedUnit* adapters : adapters_of(sharded)) adapters->await_values();
  }
  sharded.await_values();
  progress();
}

std::vector<ShardedUnit*> Zero::adapters_of(const ShardedUnit& unit) const {
  std::vector<ShardedUnit*> all;
  for (const auto& parameter : unit.unit().parameters()) {
    for (const LowRankAdapter& adapter : parameter->adapters) {
      for (const auto& factor : {adapter.a, adapter.b}) {
        ShardedUnit* const holder = by_unit_.at(factor.parameter->unit);
        if (std::ranges::find(all, holder) == all.end()) all.push_back(holder);
      }
    }
  }
  return all;
}

void Zero::pass_on_gradients(ShardedUnit& unit) {
  const std::vector<ShardedUnit*> adapters = adapters_of(unit);
  for (ShardedUnit* each : adapters) {
    each->await_values();
    need_gradients(each->unit());
  }
  add_adapter_gradients(stream_, unit.unit());
  unit.free_gradients();
  for (ShardedUnit* each : adapters) {
    for (const auto& factor : each->unit().parameters()) gradient_final(*factor);
  }
}

void Zero::release_adapted() {
  for (const auto& unit : units_) {
    if (unit->unit().adapted()) unit->release_values();
  }
}

void Zero::enter(int layer, Pass pass) {
  used_layer_ = layer;
  pass_ = pass;
  const auto here = layers_.find(layer);
  const auto next = layers_.find(pass == Pass::forward ? layer + 1 : layer - 1);
  for (auto other = layers_.begin(); other != layers_.end(); ++other) {
    if (other == here) continue;
    for (ShardedUnit* unit : other->second) {
      if (other != next || !unit->gathers()) unit->release_values();
    }
  }
  for (ShardedUnit* unit : here->second) unit->start_gather();
  if (next == layers_.end() || !overlap_) return;
  for (ShardedUnit* unit : next->second) unit->start_gather();
}

void Zero::finish_sums_except(int layer, int other) {
  for (ShardedUnit* unit : reducing_) {
    const bool keep = unit->unit().layer() == layer || unit->unit().layer() == other;
    if (at_fixed_point(*unit) && !keep) unit->finish_reduction();
  }
}

void Zero::need_gradients(ParameterUnit& unit) {
  if (unit.layer() != gradient_layer_) {
    finish_sums_except(gradient_layer_, unit.layer());
    gradient_layer_ = unit.layer();
  }
  by_unit_.at(&unit)->begin_gradients();
  std::erase_if(reducing_, [](const ShardedUnit* one) { return !one->reducing(); });
  progress();
}

void Zero::gradient_final(Parameter& parameter) {
  ShardedUnit& unit = *by_unit_.at(parameter.unit);
  if (!unit.count_final_parameter(parameter)) return progress();
  if (unit.unit().adapted()) return pass_on_gradients(unit);
  if (overlap_) {
    reducing_.push_back(&unit);
    progress();
  } else {
    unit.finish_reduction();
  }
}

void Zero::finish_gradients() {
  for (ShardedUnit* unit : reducing_) unit->finish_reduction();
  reducing_.clear();
  for (const auto& unit : units_) unit->finish_step();
}

void Zero::values_changed() {
  for (const auto& unit : units_) unit->values_changed();
  used_layer_ = -1;
  if (!overlap_) await_values();
}

void Zero::await_values() {
  for (const auto& unit : units_) unit->wait_for_values();
}

ProcessGroup::Traffic Zero::traffic(ParameterUnit::Group group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  const CopyGroups& groups = found->second;
  return {.all_reduce = groups.reductions.traffic().all_reduce,
          .reduce_scatter = groups.reductions.traffic().reduce_scatter,
          .all_gather = groups.gathers.traffic().all_gather};
}

}  // namespace lyceum
