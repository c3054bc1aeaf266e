#include "model/model_tensors.h"

#include <algorithm>

#include "core/error.h"
#include "model/tensor_pattern.h"
#include "model/transformer.h"

namespace lyceum {

namespace {

/// Calls f(unit, parameter) for every parameter of the model, which is built on one rank without a mesh.
template <class F>
void for_each_parameter(Config config, F&& f) {
  config.parallel = {};
  const Mesh mesh = Mesh::create(ProcessGroup::rehearsal(0, 1), {});
  const Transformer model(config, RehearsalStream(), mesh, DType::f32, true);
  for (const ParameterUnit* unit : model.units()) {
    for (const auto& parameter : unit->parameters()) f(*unit, *parameter);
  }
}

/// Returns the number of elements that updates change, without padding.
std::int64_t moved_elements(const Parameter& parameter) {
  std::int64_t elements = 0;
  for (const ParameterSlice& slice : parameter.slices) {
    const Shape in_memory = slice.in_memory();
    std::int64_t moved = in_memory.size();
    for (const Range& still : parameter.frozen) moved -= common(still, {slice.first, in_memory.size()}).count;
    const int last = in_memory.rank() - 1;
    if (moved > 0) elements += moved * slice.extent[last] / in_memory[last];  // only whole rows are frozen
  }
  return elements;
}

}  // namespace

std::vector<ModelTensor> model_tensors(const Config& config) {
  std::vector<ModelTensor> tensors;
  for_each_parameter(config, [&](const ParameterUnit& unit, const Parameter& parameter) {
    const bool buffer = unit.role() == ParameterUnit::Role::buffer;
    for (const ParameterSlice& slice : parameter.slices) {
      tensors.push_back({slice.name, slice.shape, parameter.initial, buffer});
    }
  });
  return tensors;
}

std::int64_t count_trained_values(const Config& config) {
  std::vector<TensorPattern> unused = tensor_patterns(config.optim.train_only);
  std::int64_t trained = 0;
  for_each_parameter(config, [&](const ParameterUnit& unit, const Parameter& parameter) {
    if (unit.trained()) trained += moved_elements(parameter);
    std::erase_if(unused, [&](const TensorPattern& pattern) { return names_any(parameter, {pattern}); });
  });
  require_usage(
      unused.empty(),
      "optim.train_only: the model has no tensor with this name and these rows: {}; docs/checkpoints.md lists "
      "the names",
      text_of(unused));
  require_usage(trained > 0, "optim.train_only names no tensor that has a gradient");
  return trained;
}

}  // namespace lyceum
