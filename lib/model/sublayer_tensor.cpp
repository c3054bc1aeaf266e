#include "model/sublayer_tensor.h"

#include <algorithm>

#include "core/error.h"
#include "core/round_up.h"

namespace lyceum {

namespace {

ParameterUnit& unit_of(const SublayerTensor& tensor, const SublayerUnits& units) {
  switch (tensor.unit()) {
    case TensorUnit::dense: return units.dense;
    case TensorUnit::replicated: return units.replicated;
    case TensorUnit::untrained: return units.untrained;
    case TensorUnit::experts: break;
  }
  require(units.experts, "{} belongs to the unit of experts, which this sub-layer does not have", tensor.name);
  return *units.experts;
}

/// Makes one parameter of the tensors of a stack, or of a single tensor. `prefix` ends in a slash.
Parameter parameter_of(std::span<const SublayerTensor> tensors, const std::string& prefix, const ProcessGroup& group) {
  const SublayerTensor& first = tensors.front();
  const std::string name = prefix + (first.stack.empty() ? first.name : first.stack);
  if (first.cut == Cut::none) return whole_parameter(name, first.shape, first.initial, first.decays());
  const int axis = first.cut == Cut::rows ? 0 : 1;
  std::vector<RowsOf> rows;
  for (const SublayerTensor& tensor : tensors) {
    const Range part = part_of(tensor.shape[axis], group.rank(), group.size());
    rows.push_back({prefix + tensor.name, tensor.shape[axis], part,
                    tensor.align > 1 ? round_up(part.count, tensor.align) : std::int64_t{0}});
  }
  if (first.shape.rank() == 1) return stacked_vector(name, rows, first.initial);
  const double std = first.initial.std.value();
  if (axis == 0) return stacked_parameter(name, rows, first.shape[1], std);
  return sharded_parameter(name, first.shape, 1, rows.front().part, std, rows.front().room);
}

}  // namespace

TensorUnit SublayerTensor::unit() const {
  if (cut == Cut::none) return trained ? TensorUnit::replicated : TensorUnit::untrained;
  return placed ? TensorUnit::experts : TensorUnit::dense;
}

std::string block_prefix(std::int64_t layer) { return "model/layers/" + std::to_string(layer); }

std::string block_prefix(const ModelConfig& model, std::int64_t layer) {
  return layer < model.layers ? block_prefix(layer) : "model/mtp/" + std::to_string(layer - model.layers);
}

std::string half_prefix(const std::string& block, Site site) {
  return block + (site == Site::attention ? "/self_attn" : "/mlp");
}

std::string expert_tensor_name(std::int64_t expert, const std::string& name) {
  return "experts/" + std::to_string(expert) + "/" + name;
}

SublayerParameters::SublayerParameters(const std::vector<SublayerTensor>& tensors, const std::string& prefix,
                                       const Mesh& mesh, const SublayerUnits& units,
                                       std::span<const std::int32_t> choices)
    : choices_(choices.begin(), choices.end()) {
  // Adds the tensors of one choice, or those of the whole half if `choice` is −1.
  const auto add = [&](std::int64_t choice) {
    const std::string inner = choice < 0 ? "" : expert_tensor_name(choice, "");
    for (auto tensor = tensors.begin(); tensor != tensors.end();) {
      const auto end = tensor->stack.empty() ? tensor + 1 : std::find_if(tensor, tensors.end(), [&](const auto& other) {
        return other.stack != tensor->stack || other.choices != tensor->choices;
      });
      const std::span stack(tensor, end);
      const Range& owners = tensor->choices;
      tensor = end;
      if (choice < 0 ? owners.count > 0 : choice < owners.first || choice >= owners.end()) continue;
      const SublayerTensor& first = stack.front();
      const ProcessGroup& group = first.placed ? mesh.expert_tensor : mesh.tensor;
      Parameter& parameter = unit_of(first, units).add(parameter_of(stack, prefix + "/" + inner, group));
      for (const SublayerTensor& each : stack) parameters_[inner + each.name] = &parameter;
    }
  };
  add(-1);
  for (const std::int32_t choice : choices_) add(choice);
}

Range elements_of(const Parameter& slice) {
  const ParameterSlice& only = slice.slices.at(0);
  require(slice.slices.size() == 1 && only.shape.rank() == 1, "{} is not a slice of a vector", slice.name);
  return {only.offset[0], only.extent[0]};
}

Parameter* SublayerParameters::find(const std::string& name) const {
  const auto found = parameters_.find(name);
  return found == parameters_.end() ? nullptr : found->second;
}

Parameter& SublayerParameters::at(const std::string& name) const {
  Parameter* const found = find(name);
  require(found, "this sub-layer has no parameter {}", name);
  return *found;
}

std::vector<Parameter*> SublayerParameters::of_choices(const std::string& name) const {
  std::vector<Parameter*> all;
  for (const std::int32_t choice : choices_) all.push_back(&at(expert_tensor_name(choice, name)));
  return all;
}

}  // namespace lyceum
