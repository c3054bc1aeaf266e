#include "plan/units.h"

#include <array>
#include <optional>

#include "model/counts.h"
#include "model/expert_places.h"
#include "model/router.h"
#include "parallel/data/flat_range.h"

namespace lyceum {

namespace {

/// Elements of parameters, each padded as ParameterUnit::add() pads, and runs of those of which all decay or none.
class Sum {
 public:
  void add(std::int64_t elements, bool decays = true) {
    constexpr std::int64_t alignment = 32;
    size_ += (elements + alignment - 1) / alignment * alignment;
    if (runs_ == 0 || decays != decays_) ++runs_;
    decays_ = decays;
  }
  std::int64_t size() const { return size_; }
  int runs() const { return runs_; }

 private:
  std::int64_t size_ = 0;
  int runs_ = 0;
  bool decays_ = false;
};

class Units {
 public:
  Units(const Config& config, const Place& place) : config_(config), place_(place), model_(config.model) {}

  void add(ParameterUnit::Group group, std::int64_t layer, const Sum& sum) {
    units_.push_back({.group = group, .layer = static_cast<int>(layer), .size = sum.size(), .decays = sum.runs()});
  }
  void add_table(std::int64_t layer, bool twin = false) {
    Sum sum;
    sum.add(part_of(model_.vocab, place_.index.tensor, model_ranks()).count * model_.hidden);
    add(ParameterUnit::Group::dense, layer, sum);
    units_.back().twin = twin;
  }
  void add_block(std::int64_t layer) {
    std::optional<std::vector<PlannedUnit>>& kind = blocks_[is_sparse(config_, layer) ? 1 : 0];
    if (!kind) kind = block_units(layer);
    for (PlannedUnit unit : *kind) {
      unit.layer = static_cast<int>(layer) + 1;
      units_.push_back(unit);
    }
  }
  std::vector<PlannedUnit> take() { return std::move(units_); }

 private:
  int model_ranks() const { return place_.size(Axis::tensor); }
  void add_ffn(Sum& sum, std::int64_t width) const {
    const std::int64_t gates = model_.ffn == "gelu" ? 1 : 2;
    sum.add(gates * width * model_.hidden);
    sum.add(width * model_.hidden);
  }
  Sum experts_of(const Mixture& mixture) const;
  std::vector<PlannedUnit> block_units(std::int64_t layer) const;

  const Config& config_;
  const Place& place_;
  const ModelConfig& model_;
  std::vector<PlannedUnit> units_;
  std::array<std::optional<std::vector<PlannedUnit>>, 2> blocks_;  // of a dense and of a sparse one
};

std::vector<PlannedUnit> Units::block_units(std::int64_t layer) const {
  const BlockCounts counts = count_block(config_, layer);
  Sum replicated, dense, untrained;
  replicated.add(model_.hidden, false);
  replicated.add(model_.hidden, false);
  std::int64_t other_routers = counts.routers.total;  // of models that are planned only
  const std::optional<Mixture> experts = routed_experts(config_, layer);
  if (experts) {
    for (const RouterTensor& tensor : router_tensors(config_, *experts)) {
      (tensor.trained ? replicated : untrained).add(tensor.shape.size(), tensor.decay);
      other_routers -= tensor.shape.size();
    }
  }
  if (other_routers > 0) replicated.add(other_routers);
  if (counts.fusion.total > 0) replicated.add(counts.fusion.total);
  const std::int64_t queries = model_.heads / model_ranks() * model_.head_dim;
  const std::int64_t keys = model_.kv_heads / model_ranks() * model_.head_dim;
  std::int64_t matrices = 1;  // of queries
  for (const Mixture& mixture : mixtures_of(config_, layer)) {
    if (mixture.id.site == Site::attention && mixture.kind == Mixture::Kind::experts) matrices = mixture.choices();
  }
  dense.add((matrices * queries + 2 * keys) * model_.hidden);
  dense.add(matrices * queries * model_.hidden);
  if (const std::int64_t width = dense_width(config_, layer); width > 0) {
    add_ffn(dense, part_of(width, place_.index.tensor, model_ranks()).count);
  }
  std::vector<PlannedUnit> units{
      {.group = ParameterUnit::Group::replicated, .layer = 0, .size = replicated.size(), .decays = replicated.runs()},
      {.group = ParameterUnit::Group::dense, .layer = 0, .size = dense.size()}};
  if (experts) {
    units.push_back({.group = ParameterUnit::Group::expert, .layer = 0, .size = experts_of(*experts).size()});
  }
  if (untrained.size() > 0) {
    units.push_back(
        {.group = ParameterUnit::Group::replicated, .layer = 0, .size = untrained.size(), .trained = false});
  }
  return units;
}

Sum Units::experts_of(const Mixture& mixture) const {
  const Placement placement = place_experts(config_, mixture, place_.size(Axis::expert), {});
  Sum sum;
  for (const std::int32_t e : placement.experts_of(place_.index.expert)) {
    const std::int64_t width = mixture.widths[static_cast<std::size_t>(e)];
    add_ffn(sum, part_of(width, place_.index.expert_tensor, place_.size(Axis::expert_tensor)).count);
  }
  return sum;
}

}  // namespace

std::vector<PlannedUnit> planned_units(const Config& config, const Place& place, const Range& blocks) {
  const bool first = blocks.first == 0, last = blocks.end() == config.model.layers;
  Units units(config, place);
  if (first) units.add_table(0);
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) units.add_block(layer);
  if (last) {
    Sum norm;
    norm.add(config.model.hidden, false);
    units.add(ParameterUnit::Group::replicated, config.model.layers + 1, norm);
    if (!config.model.tie_embeddings || !first) {
      units.add_table(config.model.layers + 1, config.model.tie_embeddings);
    }
  }
  return units.take();
}

Axis copies_axis(ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return Axis::data;
    case ParameterUnit::Group::replicated: return Axis::data_tensor;
    default: return Axis::expert_data;
  }
}

int copy_index(const Place& place, ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return place.index.data;
    case ParameterUnit::Group::replicated: return place.index.data * place.shape.tensor + place.index.tensor;
    default: return place.index.expert_data;
  }
}

std::int64_t value_bytes(const Config& config, const PlannedUnit& unit) {
  return unit.trained ? element_bytes(config) : accumulator_bytes;
}

std::int64_t owned_elements(const PlannedUnit& unit, const Place& place) {
  return cut_evenly(unit.size, place.size(copies_axis(unit.group)), copy_index(place, unit.group)).count;
}

}  // namespace lyceum
