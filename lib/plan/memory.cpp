#include "plan/memory.h"

#include <iterator>

#include "autograd/key_value_cache.h"
#include "model/loss_kind.h"
#include "model/routing/mixture.h"
#include "model/routing/routing_sums.h"
#include "model/sublayer_spec.h"
#include "model/working_type.h"
#include "optim/expert_mover.h"
#include "optim/step_end.h"
#include "optim/step_numbers.h"
#include "optim/update_rule.h"
#include "parallel/data/copies.h"
#include "parallel/data/flat_range.h"
#include "parallel/data/norm_sums.h"
#include "plan/adapted.h"

namespace lyceum {

namespace {

/// True if several ranks hold copies of the unit, so that ZeRO can shard it.
bool shared(const MeshRank& mesh_rank, const PlannedUnit& unit) { return mesh_rank.size(copies_axis(unit.group)) > 1; }

/// Returns the bytes of the unit's values that this rank writes to checkpoints: weights in f32, and the state that
/// rules and averages have beside them.
double saved_bytes(const Config& config, const MeshRank& mesh_rank, const PlannedUnit& unit) {
  double bytes =
      number(accumulator_bytes) * number(shared(mesh_rank, unit) ? owned_elements(unit, mesh_rank) : unit.size);
  if (!unit.trained()) return bytes;
  for (const auto& [range, rule] : rule_ranges(unit.updates, updated_range(unit, mesh_rank, 1))) {
    bytes +=
        number((state_bytes(rule, config.optim, DType::f32) + average_bytes(config.optim, DType::f32)) * range.count);
  }
  return bytes;
}

}  // namespace

RankMemory state_memory(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                        const ZeroStates& zero_states) {
  const int zero = config.parallel.zero;
  const double sum = number(accumulator_bytes);
  const DType type = working_type(config.run);
  std::int64_t blocks = 0;  // blocks of elements that are updated
  RankMemory memory{.weights = zero >= 3 ? zero_states.values : 0, .gradients = zero >= 2 ? zero_states.gradients : 0};
  if (zero >= 2) memory.passing += zero_states.gradients - zero_states.early_gradients;
  if (zero >= 3) memory.passing += zero_states.values - zero_states.early_values;
  const AdaptedMemory adapted = adapted_memory(config, mesh_rank, units);
  memory.weights += adapted.values;
  memory.gradients += adapted.gradients;
  memory.passing += adapted.values - adapted.early_values + adapted.gradients - adapted.early_gradients;
  for (const PlannedUnit& unit : units) {
    const bool cut = shared(mesh_rank, unit);
    const double whole = number(unit.size), own = cut ? number(owned_elements(unit, mesh_rank)) : whole;
    const double element = number(value_bytes(config, unit));
    const bool sharded = cut && zero >= 3 && unit.role != ParameterUnit::Role::buffer;
    memory.weights += element * (sharded ? own : whole);
    memory.saved += saved_bytes(config, mesh_rank, unit);
    if (!unit.trained()) continue;
    memory.gradients += sum * (cut && zero >= 2 ? own : whole);
    const Range updated = updated_range(unit, mesh_rank, zero);
    for (const auto& [range, rule] : rule_ranges(unit.updates, updated)) {
      memory.optimizer +=
          number((state_bytes(rule, config.optim, type) + average_bytes(config.optim, type)) * range.count);
      // An average is read and written, and the master is read once more.
      memory.update_bytes +=
          number((update_bytes(rule, config.optim, type) + 3 * average_bytes(config.optim, type)) * range.count);
    }
    blocks += flat_blocks_of(updated.count);
  }
  if (config.run.audit_every > 0) memory.optimizer += number(digest_bytes(blocks));
  if (overlaps_batches(config.parallel)) memory.passing = 0;  // activations may be at their maximum at any time
  return memory;
}

double rope_bytes(const Config& config) { return number(position_table_shape(config).size() * accumulator_bytes); }

double cache_bytes(const Config& config, const MeshRank& mesh_rank, const Range& blocks) {
  std::int64_t elements = 0;
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    const AttentionCosts costs = attention_spec(config, layer).costs;
    const KeyValueCache cache{.capacity = config.batch.seq_len, .window = costs.window};
    elements += cache.rows() * (costs.cache_width / (costs.cache_is_cut ? mesh_rank.size(Axis::tensor) : 1));
  }
  return number(elements * element_bytes(config));
}

double cache_bytes(const Config& config) {
  return cache_bytes(config, MeshRank::of(ParallelConfig{}, 1, 0), {0, config.model.layers});
}

namespace {

/// Returns the counts of these units that determine the memory and the traffic of gradient norms.
NormSums::Counts norm_counts(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units) {
  NormSums::Counts counts{.layers = static_cast<int>(config.model.layers) + 2};
  for (const PlannedUnit& unit : units) {
    if (!unit.trained()) continue;
    ++counts.shares;
    if (unit.twin) continue;
    ++counts.counted;
    if (config.parallel.zero >= 1 && shared(mesh_rank, unit))
      counts.shared_blocks[unit.group] += flat_blocks_of(unit.size);
  }
  return counts;
}

}  // namespace

double update_buffers(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units) {
  const NormSums::Counts counts = norm_counts(config, mesh_rank, units);
  std::int64_t spans = 0, slices = 0;
  for (const PlannedUnit& unit : units) {
    spans += unit.trained() ? std::ssize(unit.updates) : 0;
    slices += unit.rounded_slices;
  }
  return number(StepNumbers::bytes(LossTable(config), counts.layers) +
                update_table_bytes(counts.shares, spans, slices) + StepEnd::table_bytes(counts) +
                (config.optim.qk_clip > 0 ? QkClip::bytes(config, mesh_rank.shape.tensor) : 0));
}

double move_bytes(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units) {
  if (config.parallel.replace_every == 0) return 0;
  std::int64_t most = 0;  // bytes of a master that may leave the rank
  for (const PlannedUnit& unit : units) {
    if (unit.group == ParameterUnit::Group::expert && unit.trained())
      most = std::max(most, updated_range(unit, mesh_rank, config.parallel.zero).count * accumulator_bytes);
  }
  return 2 * number(std::min(most, expert_round_bytes));
}

std::map<int, LayerBytes> shared_layers(const Config& config, const MeshRank& mesh_rank,
                                        std::span<const PlannedUnit> units) {
  std::map<int, LayerBytes> layers;
  for (const PlannedUnit& unit : units) {
    LayerBytes& layer = layers[unit.layer];
    if (unit.role == ParameterUnit::Role::buffer || !shared(mesh_rank, unit)) continue;
    layer.values += number(unit.size * element_bytes(config));
    if (!unit.trained()) continue;
    layer.gradients += number(unit.size * accumulator_bytes);
  }
  return layers;
}

namespace {

/// Adds the traffic of losses, norms and loads of experts.
void add_end_of_step(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                     Traffic& end) {
  // The number of trained targets. Ranks also agree on it if a token file has a mask, but a plan does not open files.
  if (config.data.document_mask || config.data.samples == SampleKind::packed) {
    end.add(mesh_rank, Axis::data, Transfer::all_reduce, sizeof(std::int64_t));
  }
  for (const auto& [axis, numbers] : StepEnd::exchanges(LossTable(config), norm_counts(config, mesh_rank, units))) {
    end.add(mesh_rank, axis, Transfer::all_reduce, number(numbers) * sizeof(double));
  }
  if (config.optim.qk_clip > 0) {
    const auto [axis, numbers] = QkClip::exchange(config, mesh_rank.shape.tensor);
    end.add(mesh_rank, axis, Transfer::all_reduce, number(numbers) * sizeof(double));
  }
  for (const Axis axis : whole_model) {
    end.add(mesh_rank, axis, Transfer::all_reduce, number(summed_loads(config)) * sizeof(std::int64_t));
    if (config.parallel.replicas > 0) {
      end.add(mesh_rank, axis, Transfer::all_reduce, number(summed_replicas(config)) * sizeof(std::int64_t));
    }
  }
}

}  // namespace

StepTraffic step_traffic(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                         const ZeroStates& zero_states) {
  const int zero = config.parallel.zero;
  const double element = number(element_bytes(config)), passes = number(micro_batches(config, mesh_rank.world));
  StepTraffic step;
  for (const PlannedUnit& unit : units) {
    if (unit.role == ParameterUnit::Role::buffer) continue;
    const Axis axis = copies_axis(unit.group);
    const bool cut = shared(mesh_rank, unit);
    const double own = number(cut ? owned_elements(unit, mesh_rank) : unit.size);
    const auto add_gathers = [&] {
      const auto gathers = zero_states.gathers.find(unit.layer);
      double times = 1;  // in stages 1 and 2, after the update
      if (zero >= 3) times = gathers == zero_states.gathers.end() ? 0 : gathers->second;
      step.gathers.add(mesh_rank, axis, Transfer::all_gather, times * own * element, times);
    };
    if (!unit.trained()) {
      if (cut && zero >= 3) add_gathers();
      continue;
    }
    if (shares_table(config) && (unit.layer == 0 || unit.twin)) {
      step.end.add(mesh_rank, Axis::pipeline_ends, Transfer::all_reduce,
                   (zero >= 1 ? own : number(unit.size)) * number(accumulator_bytes));
    }
    if (!cut) continue;
    const double sums = zero < 2 ? 1 : passes;
    step.reductions.add(mesh_rank, axis, Transfer::reduce_scatter, sums * number(unit.size * accumulator_bytes), sums);
    if (zero == 0) {
      step.gathers.add(mesh_rank, axis, Transfer::all_gather, own * number(accumulator_bytes));
    } else {
      add_gathers();
    }
  }
  add_end_of_step(config, mesh_rank, units, step.end);
  return step;
}

}  // namespace lyceum
