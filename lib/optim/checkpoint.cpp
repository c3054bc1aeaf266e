#include "optim/checkpoint.h"

#include <algorithm>
#include <span>

#include "io/checkpoint/unit_tensors.h"
#include "kernels/tensor_kernels.h"
#include "model/model_tensors.h"

namespace lyceum {

namespace {

/// Returns e.g. "optimizer/exp_avg/", which precedes the name of a weight.
std::string state_prefix(std::string_view state) { return std::string(optimizer_prefix).append(state) + "/"; }

/// Returns the rule that is not `rule`.
WeightRule other_rule(WeightRule rule) { return rule == WeightRule::muon ? WeightRule::adamw : WeightRule::muon; }

/// True if the checkpoint has this state of `rule` of a tensor, false if it has only states of another rule. Throws a
/// bad_input Error if it has neither, or some states of `rule` but not this one.
bool has_state(const CheckpointReader& reader, WeightRule rule, std::string_view state, const std::string& tensor) {
  const std::string name = state_prefix(state) + tensor;
  if (reader.find(name)) return true;
  const auto present = [&](std::string_view each) { return reader.find(state_prefix(each) + tensor) != nullptr; };
  if (std::ranges::none_of(states_of(rule), present) && std::ranges::any_of(states_of(other_rule(rule)), present)) {
    return false;
  }
  fail(ExitCode::bad_input, "{}: no tensor {}: was it written by another model?", reader.directory().string(), name);
}

/// True if a unit has adapters that the checkpoint does not have.
bool lacks_adapters(const CheckpointReader& reader, const ParameterUnit& unit) {
  const std::string& some = unit.parameters().front()->slices.front().name;
  return is_adapter(some) && !reader.has_adapters();
}

}  // namespace

void draw_missing_adapters(const Optimizer& optimizer, const CheckpointReader& reader, std::uint64_t seed) {
  for (const UpdatedShare& updated : optimizer.updated()) {
    const UnitShare& share = updated.share;
    if (lacks_adapters(reader, *share.unit)) {
      share.unit->initialize(optimizer.stream(), seed, share.updated.first, updated.master);
    }
  }
}

std::vector<CheckpointSlice> checkpoint_slices(const Optimizer& optimizer) {
  std::vector<CheckpointSlice> slices;
  // `values`: those of elements `range` of the unit.
  const auto append = [&](const UnitShare& share, std::string_view prefix, const Range& range, const Tensor& values) {
    if (share.unit->twin()) return;
    append_slices(optimizer.stream(), *share.unit, prefix, common(share.owned, range), values, range.first, slices);
  };
  for (const UpdatedShare& updated : optimizer.updated()) {
    append(updated.share, "", updated.share.updated, updated.master);
    if (updated.average.defined()) {
      append(updated.share, average_prefix, updated.share.updated, updated.average);
    }
    for (const UpdatedShare::Part& part : updated.parts) {
      const auto names = states_of(part.rule);
      for (std::size_t s = 0; s < names.size(); ++s) {
        const std::size_t before = slices.size();
        append(updated.share, state_prefix(names[s]), part.range, part.states[s]);
        for (CheckpointSlice& slice : std::span(slices).subspan(before)) slice.type = part.states[s].dtype();
      }
    }
  }
  for (const UnitShare& share : optimizer.untrained()) append(share, "", share.updated, share.values);
  return slices;
}

void load_checkpoint(Optimizer& optimizer, const CheckpointReader& reader, const RunOnFiles& read_files) {
  const Stream& stream = optimizer.stream();
  const bool has_states = reader.has_optimizer_state();
  for (const UpdatedShare& updated : optimizer.updated()) {
    const UnitShare& share = updated.share;
    if (!lacks_adapters(reader, *share.unit)) {
      read_range(reader, stream, *share.unit, "", share.updated, updated.master, read_files);
    }
    for (const UpdatedShare::Part& part : updated.parts) {
      const auto names = states_of(part.rule);
      for (std::size_t s = 0; s < names.size(); ++s) {
        // A run that rolls back to a checkpoint without a state must not keep its later state.
        const auto reads = [&](const std::string& tensor) {
          return has_states && has_state(reader, part.rule, names[s], tensor);
        };
        read_states(reader, stream, *share.unit, state_prefix(names[s]), part.range, part.states[s], reads, read_files);
      }
    }
    if (updated.average.defined()) {
      const auto has_average = [&](const std::string& tensor) {
        return reader.find(std::string(average_prefix).append(tensor)) != nullptr;
      };
      convert(stream, updated.master, updated.average);
      read_some(reader, stream, *share.unit, average_prefix, share.updated, updated.average, has_average, read_files);
    }
    if (updated.master.dtype() != share.values.dtype()) convert(stream, updated.master, share.values);
  }
  for (const UnitShare& share : optimizer.untrained()) {
    read_weights(reader, stream, *share.unit, share.updated, share.values, read_files);
  }
  optimizer.frozen_elements().clear_states(stream, optimizer.updated());
  optimizer.renew_digests();
}

std::map<std::string, std::int64_t> states_of_other_rules(const Config& config, const CheckpointReader& reader) {
  std::map<std::string, std::int64_t> missing;
  if (!reader.has_optimizer_state()) return missing;
  const RuleAssignment rules(config.optim);
  for (const ModelTensor& tensor : model_tensors(config)) {
    const auto present = [&](std::string_view state) { return reader.find(state_prefix(state) + tensor.name); };
    const WeightRule rule = rules.rule_of(tensor.name, tensor.shape);
    if (!std::ranges::any_of(states_of(other_rule(rule)), present)) continue;  // not trained, or only by this rule
    for (const std::string_view state : states_of(rule)) {
      if (!present(state)) ++missing[std::string(state)];
    }
  }
  return missing;
}

}  // namespace lyceum
