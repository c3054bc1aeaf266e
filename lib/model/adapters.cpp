#include "model/adapters.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/error.h"
#include "io/checkpoint/contents.h"
#include "model/model_tensors.h"
#include "model/routing/mixture.h"

namespace lyceum {

namespace {

/// The axis along which ranks divide a matrix.
enum class DividedAxis : std::uint8_t { none, rows, columns };

/// Returns the axis along which the ranks of a unit's group divide the matrix of a slice. Throws a usage Error if this
/// rank has all of it, so that the others have nothing.
DividedAxis divided_axis(const ParameterSlice& slice) {
  if (slice.extent[0] != slice.shape[0]) return DividedAxis::rows;
  require_usage(slice.extent[1] != slice.shape[1],
                "optim.lora_targets: {} is {}, too small to be divided among ranks: leave it out, or set "
                "parallel.tensor = parallel.expert_tensor = 1",
                slice.name, slice.shape.text());
  return DividedAxis::columns;
}

/// Returns the group of units for a factor that every rank has in full although the matrix is divided.
ParameterUnit::Group group_of_whole(ParameterUnit::Group group) {
  return group == ParameterUnit::Group::expert ? ParameterUnit::Group::expert_replicated
                                               : ParameterUnit::Group::replicated;
}

/// Adds this rank's slice of a factor to a unit.
LowRankAdapter::Factor add_factor(ParameterUnit& unit, ParameterSlice slice, const Initial& initial) {
  Parameter made{.name = slice.name,
                 .shape = slice.extent,
                 .slices = {std::move(slice)},
                 .initial = initial,
                 .decay = true,
                 .value = {},
                 .gradient = {}};
  Parameter& added = unit.add(std::move(made));
  return {&added, unit.first_of(unit.parameters().size() - 1)};
}

}  // namespace

Adapters::Adapters(const OptimConfig& optim, const Mesh& mesh)
    : rank_(optim.lora_rank),
      scale_(adapter_scale(optim)),
      targets_(whole_tensor_patterns("optim.lora_targets", optim.lora_targets)),
      mesh_(mesh) {}

bool Adapters::adapts(const ParameterSlice& slice) const {
  return slice.shape.rank() == 2 && matches_any(targets_, slice.name);
}

Adapters::Units Adapters::divide(ParameterUnit& unit) const {
  const auto made = [&](const char* use, ParameterUnit::Role role) {
    return std::make_unique<ParameterUnit>(unit.name() + use, unit.group(), unit.layer(), role);
  };
  Units units{.frozen = made("/frozen", ParameterUnit::Role::frozen),
              .adapted = made("/adapted", ParameterUnit::Role::adapted),
              .factors = {}};
  units.adapted->set_adapter_scale(scale_);
  unit.move_to(*units.adapted, [&](const Parameter& parameter) {
    return std::ranges::any_of(parameter.slices, [&](const ParameterSlice& slice) { return adapts(slice); });
  });
  unit.move_to(*units.frozen, [](const Parameter&) { return true; });
  add(*units.adapted, units.factors);
  return units;
}

/// Adds the adapters of all parameters of a unit, and the units that hold them.
void Adapters::add(ParameterUnit& adapted, std::vector<std::unique_ptr<ParameterUnit>>& factors) const {
  using Group = ParameterUnit::Group;
  const Group group = adapted.group();
  const int sharers = group == Group::dense    ? mesh_.tensor.size()
                      : group == Group::expert ? mesh_.expert_tensor.size()
                                               : 1;
  auto own = std::make_unique<ParameterUnit>(adapted.name() + "/factors", group, adapted.layer());
  auto whole =
      std::make_unique<ParameterUnit>(adapted.name() + "/whole factors", group_of_whole(group), adapted.layer());
  for (const auto& parameter : adapted.parameters()) {
    for (std::size_t s = 0; s < parameter->slices.size(); ++s) {
      const ParameterSlice& slice = parameter->slices[s];
      if (!adapts(slice)) continue;
      const DividedAxis axis = sharers > 1 ? divided_axis(slice) : DividedAxis::none;
      const std::int64_t rows = slice.shape[0], columns = slice.shape[1];
      ParameterSlice a{.name = std::string(adapter_a_prefix) + slice.name,
                       .shape = {rank_, columns},
                       .offset = {0, slice.offset[1]},
                       .extent = {rank_, slice.extent[1]},
                       .first = 0};
      ParameterSlice b{.name = std::string(adapter_b_prefix) + slice.name,
                       .shape = {rows, rank_},
                       .offset = {slice.offset[0], 0},
                       .extent = {slice.extent[0], rank_},
                       .first = 0};
      // peft: nn.init.kaiming_uniform_(A, a=√5), which is uniform in ±√(6 / ((1 + 5)·n)).
      const Initial random = Initial::uniform(1 / std::sqrt(static_cast<double>(columns)));
      parameter->adapters.push_back({.slice = s,
                                     .a = add_factor(axis == DividedAxis::rows ? *whole : *own, std::move(a), random),
                                     .b = add_factor(axis == DividedAxis::columns ? *whole : *own, std::move(b), 0.0)});
    }
  }
  for (auto* unit : {&own, &whole}) {
    if (!(*unit)->parameters().empty()) factors.push_back(std::move(*unit));
  }
}

void require_adaptable(const Config& config) {
  const std::int64_t rank = config.optim.lora_rank;
  if (rank == 0) return;
  Config base = config;
  remove_adapters(base.optim);
  const std::vector<TensorPattern> targets = whole_tensor_patterns("optim.lora_targets", config.optim.lora_targets);
  std::vector<TensorPattern> unused = targets;
  for (const ModelTensor& tensor : model_tensors(base)) {
    if (tensor.shape.rank() != 2 || tensor.buffer || !matches_any(targets, tensor.name)) continue;
    std::erase_if(unused, [&](const TensorPattern& pattern) { return pattern.matches(tensor.name); });
    const std::int64_t most = std::min(tensor.shape[0], tensor.shape[1]);
    require_usage(rank <= most, "optim.lora_rank = {}: {} is {}: set a rank of at most {}, or leave it out", rank,
                  tensor.name, tensor.shape.text(), most);
    require_usage(config.parallel.pipeline == 1 || !shares_table(config) || tensor.name != "model/embed_tokens/weight",
                  "optim.lora_targets names {}, which the first and the last pipeline stage hold: leave it out, or set "
                  "parallel.pipeline = 1",
                  tensor.name);
  }
  require_usage(unused.empty(),
                "optim.lora_targets: the model has no trained matrix with this name: {}; docs/checkpoints.md lists the "
                "names",
                text_of(unused));
}

}  // namespace lyceum
