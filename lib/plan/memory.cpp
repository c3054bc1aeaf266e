#include "plan/memory.h"

#include <array>
#include <iterator>

#include "kernels/adamw.h"
#include "model/loss_kind.h"
#include "model/routing/mixture.h"
#include "model/sublayer_spec.h"
#include "model/working_type.h"
#include "optim/update_rule.h"
#include "parallel/data/copies.h"
#include "parallel/data/flat_range.h"
#include "parallel/data/norm_sums.h"

namespace lyceum {

namespace {

bool shared(const Place& place, const PlannedUnit& unit) { return place.size(copies_axis(unit.group)) > 1; }

}  // namespace

RankMemory state_memory(const Config& config, const Place& place, std::span<const PlannedUnit> units,
                        const ZeroStates& played) {
  const int zero = config.parallel.zero;
  const double sum = number(accumulator_bytes);
  const double state = number(state_bytes(config.optim, working_type(config.run)));
  const bool audited = config.run.audit_every > 0;
  constexpr double digest = sizeof(std::uint32_t);  // of a block, and one that reports damage
  RankMemory memory{.weights = zero >= 3 ? played.values : 0, .gradients = zero >= 2 ? played.gradients : 0};
  if (zero >= 2) memory.passing += played.gradients - played.early_gradients;
  if (zero >= 3) memory.passing += played.values - played.early_values;
  for (const PlannedUnit& unit : units) {
    const bool cut = shared(place, unit);
    const double whole = number(unit.size), own = cut ? number(owned_elements(unit, place)) : whole;
    const double element = number(value_bytes(config, unit));
    const bool sharded = cut && zero >= 3 && unit.role != ParameterUnit::Role::buffer;
    memory.weights += element * (sharded ? own : whole);
    if (!unit.trained()) continue;
    memory.gradients += sum * (cut && zero >= 2 ? own : whole);
    const double updated = cut && zero >= 1 ? own : whole;
    memory.updated += updated;
    memory.optimizer += state * updated;
    if (audited) memory.optimizer += digest * number(flat_blocks_of(static_cast<std::int64_t>(updated)));
  }
  if (audited) memory.optimizer += digest;
  if (overlaps_batches(config.parallel)) memory.passing = 0;  // activations may be at their most at any time
  return memory;
}

double rope_bytes(const Config& config) { return number(position_table(config).size() * accumulator_bytes); }

double cache_bytes(const Config& config, const Place& place, const Range& blocks) {
  std::int64_t width = 0;  // of all blocks
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    const AttentionCosts costs = attention_spec(config, layer).costs;
    width += costs.cache_width / (costs.cache_is_cut ? place.size(Axis::tensor) : 1);
  }
  return number(config.batch.seq_len * width * element_bytes(config));
}

namespace {

/// What ranks agree on in a step: the gradient's norm, cross-entropy, and the losses of every layer.
std::int64_t step_numbers(const Config& config) { return 2 + LossTable(config).size(); }

}  // namespace

double update_buffers(const Config& config, std::span<const PlannedUnit> units) {
  const int layers = static_cast<int>(config.model.layers) + 2;
  const std::int64_t numbers =
      2 + 3 + 2 * step_numbers(config);  // norms, the step, its k and loss weight, what is agreed on
  std::int64_t all = 0, counted = 0, decays = 0;
  for (const PlannedUnit& unit : units) {
    if (!unit.trained()) continue;
    ++all;
    counted += unit.twin ? 0 : 1;
    decays += unit.decays;
  }
  return number(std::int64_t{sizeof(StepVerdict) + sizeof(AdamW::Numbers)} + numbers * std::int64_t{sizeof(double)} +
                all * std::int64_t{sizeof(UpdatedTensor<float, AdamW::states>)} +
                decays * std::int64_t{sizeof(DecaySpan)} + GradientNorm::kept_bytes(all, counted, layers) +
                NormSums::kept_bytes(all, counted, layers, 2));
}

std::map<int, LayerBytes> shared_layers(const Config& config, const Place& place, std::span<const PlannedUnit> units) {
  std::map<int, LayerBytes> layers;
  for (const PlannedUnit& unit : units) {
    LayerBytes& layer = layers[unit.layer];
    if (unit.role == ParameterUnit::Role::buffer || !shared(place, unit)) continue;
    layer.values += number(unit.size * element_bytes(config));
    if (!unit.trained()) continue;
    layer.gradients += number(unit.size * accumulator_bytes);
  }
  return layers;
}

namespace {

/// Norms that a step ends with, each of all parameters: of gradients, then of weights and updates together.
constexpr std::array norms_at_once{1.0, 2.0};

/// Losses, routing counts and norms.
void add_end_of_step(const Config& config, const Place& place, Traffic& end) {
  std::int64_t counts = 0, sums = 0;  // of all routers: choices; probabilities and an entropy each
  for (const Mixture& mixture : mixtures_of(config)) {
    counts += (mixture.capacity_factor > 0 ? 2 : 1) * mixture.k * mixture.choices();
    sums += mixture.choices() + 1;
  }
  const double layers = number(config.model.layers + 2);
  // The targets that count; the mask of a token file makes ranks agree on them too, but a plan opens none.
  if (config.data.document_mask || config.data.samples == "packed") {
    end.add(place, Axis::data, Transfer::all_reduce, sizeof(std::int64_t));
  }
  for (const Axis axis : {Axis::data_tensor, Axis::pipeline}) {
    end.add(place, axis, Transfer::all_reduce, number(step_numbers(config)) * sizeof(double));
  }
  for (const Axis axis : {Axis::data_tensor, Axis::pipeline}) {
    end.add(place, axis, Transfer::all_reduce, number(counts) * sizeof(std::int64_t));
    end.add(place, axis, Transfer::all_reduce, number(sums) * sizeof(double));
  }
  for (const double norms : norms_at_once) {
    for (const Axis axis : {Axis::tensor, Axis::expert_tensor, Axis::expert}) {
      end.add(place, axis, Transfer::all_reduce, norms * layers * sizeof(double));
    }
    const double kinds = number(std::ssize(parameter_groups));  // of parameters
    end.add(place, Axis::pipeline, Transfer::all_reduce, norms * kinds * layers * sizeof(double));
  }
}

}  // namespace

StepTraffic step_traffic(const Config& config, const Place& place, std::span<const PlannedUnit> units,
                         const ZeroStates& played) {
  const int zero = config.parallel.zero;
  const double element = number(element_bytes(config)), passes = number(micro_batches(config, place.world));
  StepTraffic step;
  std::map<Axis, double> squares;  // blocks whose sums of squares are exchanged
  for (const PlannedUnit& unit : units) {
    if (unit.role == ParameterUnit::Role::buffer) continue;
    const Axis axis = copies_axis(unit.group);
    const bool cut = shared(place, unit);
    const double own = number(cut ? owned_elements(unit, place) : unit.size);
    const auto add_gathers = [&] {
      const auto gathers = played.gathers.find(unit.layer);
      const double times = zero < 3 ? 1 : gathers == played.gathers.end() ? 0 : gathers->second;
      step.gathers.add(place, axis, Transfer::all_gather, times * own * element, times);
    };
    if (!unit.trained()) {
      if (cut && zero >= 3) add_gathers();
      continue;
    }
    if (config.model.tie_embeddings && (unit.layer == 0 || unit.twin)) {
      step.end.add(place, Axis::pipeline_ends, Transfer::all_reduce,
                   (zero >= 1 ? own : number(unit.size)) * number(accumulator_bytes));
    }
    if (!cut) continue;
    const double sums = zero < 2 ? 1 : passes;
    step.reductions.add(place, axis, Transfer::reduce_scatter, sums * number(unit.size * accumulator_bytes), sums);
    if (zero == 0) {
      step.gathers.add(place, axis, Transfer::all_gather, own * number(accumulator_bytes));
    } else {
      add_gathers();
      if (!unit.twin) squares[axis] += number(flat_blocks_of(unit.size));
    }
  }
  for (const auto& [axis, blocks] : squares) {
    for (const double norms : norms_at_once) {
      step.end.add(place, axis, Transfer::all_reduce, norms * blocks * sizeof(double));
    }
  }
  add_end_of_step(config, place, step.end);
  return step;
}

}  // namespace lyceum
