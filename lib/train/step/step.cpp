#include "train/step/step.h"

#include <algorithm>
#include <numeric>

#include "model/routing/routing_sums.h"
#include "parallel/data/copies.h"
#include "plan/mesh_rank.h"
#include "train/step/audit.h"
#include "train/step/nonfinite_search.h"
#include "train/step/replay.h"
#include "train/step/schedule.h"

namespace lyceum {

bool is_due(std::int64_t steps, std::int64_t every) { return every > 0 && steps % every == 0; }

Zero::Options zero_options(const Config& config, const Mesh& mesh) {
  return {.stage = config.parallel.zero,
          .micro_batches = micro_batches(config, mesh.world.size()),
          .type = working_type(config.run)};
}

TrainStep::TrainStep(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero, Optimizer& optimizer)
    : config_(config),
      setup_(setup),
      model_(model),
      zero_(zero),
      optimizer_(optimizer),
      numbers_(setup.stream, LossTable(config), model.layers()),
      attention_logits_(config.optim.qk_clip > 0
                            ? std::optional<AttentionLogits>(std::in_place, config, setup.mesh, setup.stream)
                            : std::nullopt),
      qk_clip_(attention_logits_
                   ? std::optional<QkClip>(std::in_place, config, setup.mesh, setup.stream, *attention_logits_)
                   : std::nullopt),
      passes_(config, setup, model, zero, optimizer.shares(), numbers_),
      end_(setup.mesh, optimizer, numbers_, model.layers(), config.optim.clip_norm, qk_clip_ ? &*qk_clip_ : nullptr),
      recorded_(setup.stream, config.run.cuda_graph && setup.mesh.world.size() == 1) {
  passes_.set_attention_logits(attention_logits_ ? &*attention_logits_ : nullptr);
}

ProcessGroup::Traffic TrainStep::shared_table_traffic() const {
  const ProcessGroup* holders = passes_.table_holders();
  return holders ? holders->traffic() : ProcessGroup::Traffic{};
}

/// Launches the end of a step without waiting for its numbers: the device decides if the weights are updated.
void TrainStep::update() {
  const ProfileScope timed(profile_of(setup_.stream), "optimizer");
  const Tensor squares = end_.update();
  zero_.values_changed();
  end_.measure(squares);
  for (const auto& stage : model_.stages()) stage->update_routers(numbers_.verdict());
}

/// Waits for the device, copies the numbers of the step to `result`, and returns all of them.
StepNumbers::Values TrainStep::read(StepResult& result) const {
  StepNumbers::Values values = numbers_.read(setup_.stream);
  result.loss = values.cross_entropy;
  auto layer = values.layer_losses.begin();
  const std::int64_t layers = numbers_.loss_table().layers();
  for (const LossKind kind : numbers_.loss_table().kinds()) {
    result.losses.push_back({kind, std::accumulate(layer, layer + layers, 0.0)});
    layer += layers;
  }
  result.grad_norm = values.gradient_norm;
  result.weight_norm = values.weight_norm;
  result.update_norm = values.update_norm;
  result.skipped = values.skipped;
  result.outlier = values.outlier;
  return values;
}

/// Switches the measurement of layers in the passes on or off.
void TrainStep::measure_layers(bool on) {
  passes_.measure_layers(on);
  if (qk_clip_ || !AttentionLogits::exist(config_.model)) return;
  if (on) {
    attention_logits_.emplace(config_, setup_.mesh, setup_.stream);
  } else {
    attention_logits_.reset();
  }
  passes_.set_attention_logits(on ? &*attention_logits_ : nullptr);
}

/// Collective over the world. Returns the measurements of the step that was just made.
LayerMetrics TrainStep::layer_metrics(const StepNumbers::Values& values) const {
  LayerMetrics metrics{.weight_norms = values.layer_weight_norms,
                       .gradient_norms = values.layer_gradient_norms,
                       .activation_norms = passes_.measured_layers()};
  metrics.largest_logit = metrics.activation_norms.back();
  metrics.activation_norms.pop_back();
  if (attention_logits_) metrics.attention_logits = attention_logits_->by_block(setup_.mesh.world);
  return metrics;
}

/// Collective over the world. Throws if copies of units differ between ranks. `step`: number of the step that is being
/// made, or of the last one, from 1 on.
void TrainStep::compare_copies(std::int64_t step) const {
  const Mesh& mesh = setup_.mesh;
  const std::int64_t last = std::max<std::int64_t>(0, step - config_.run.audit_every);
  // False for a unit of which ranks hold only parts (ZeRO 3), or whose values are temporary.
  const auto is_whole = [&](const ParameterUnit& unit) {
    const bool sharded = config_.parallel.zero >= 3 && copies(mesh, unit.group()).size() > 1;
    return unit.size() > 0 && !unit.adapted() && (!sharded || unit.role() == ParameterUnit::Role::buffer);
  };
  zero_.await_values();
  for (const ParameterUnit::Group group : parameter_groups) {
    std::vector<const ParameterUnit*> units;
    for (const ParameterUnit* unit : model_.units()) {
      if (unit->group() == group && is_whole(*unit)) units.push_back(unit);
    }
    if (units.empty()) continue;
    require_equal_copies(setup_.stream, copies(mesh, group), units, last);
  }
  const ProcessGroup* holders = passes_.table_holders();
  if (const ParameterUnit* table = model_.shared_table(); holders && table && is_whole(*table)) {
    require_equal_copies(setup_.stream, *holders, std::span(&table, 1), last);
  }
}

void TrainStep::audit(std::int64_t steps) const {
  require_undamaged();
  if (config_.run.audit_every > 0 && setup_.mesh.world.size() > 1) compare_copies(steps);
}

void TrainStep::require_undamaged(const std::string& damage) const {
  // The message need not name this rank: `main`, or the checkpoint that fails because of this, adds rank and host.
  require(damage.empty(), "{}: possible memory fault; {}", damage, advice_on_fresh_faults);
}

StepResult TrainStep::run(const TokenLoader& loader, std::int64_t step, std::int64_t first_sample, double lr,
                          const StepLimits& limits) {
  StepResult result;
  result.lr = lr;
  result.targets = passes_.load(loader, first_sample, setup_.mesh.data.rank());
  optimizer_.prepare(lr);
  zero_.release_adapted();
  numbers_.set_step(setup_.stream, {.step = step,
                                    .choices = choices_of_step(config_.moe, step, config_.run.steps),
                                    .targets = result.targets,
                                    .limits = limits});
  const bool audited = is_due(step + 1, config_.run.audit_every);
  const bool measured = is_due(step + 1, layer_metrics_every_of(config_.run));
  measure_layers(measured);
  const auto checked_update = [&] {
    if (audited && setup_.mesh.world.size() > 1) compare_copies(step + 1);  // the weights that the passes used
    update();
  };
  if (is_due(step + 1, config_.run.replay_every)) {
    recorded_.forget();
    const Replay replay{.config = config_,
                        .setup = setup_,
                        .shares = optimizer_.shares(),
                        .layers = model_.layers(),
                        .first_step = !computed_};
    result.trace = replay.run(passes_, loader, first_sample, step + 1);
    checked_update();
  } else {
    const auto passes_and_update = [&] {
      result.trace = passes_.run();
      checked_update();
    };
    if (measured) {  // these passes launch additional kernels
      recorded_.forget();
      passes_and_update();
    } else {
      recorded_.run(passes_and_update);
    }
  }
  const StepNumbers::Values values = read(result);
  if (measured) result.layers = layer_metrics(values);
  if (!result.skipped) {
    optimizer_.count_update();
  } else if (!result.outlier && result.targets > 0) {
    result.culprit = find_nonfinite(setup_.mesh.world, passes_, optimizer_, values, model_.layers());
  }
  result.routing = model_.routing();
  result.loads = sum_loads_over_ranks(setup_.stream, config_, setup_.mesh, result.routing);
  for (const RoutingSums& layer : result.loads) {
    result.load_imbalance = std::max(result.load_imbalance, imbalance(layer));
  }
  if (config_.parallel.replicas > 0) {
    result.replica_sums = passes_.replica_sums();
    result.replicas = sum_replicas_over_ranks(setup_.stream, config_, setup_.mesh, passes_.replicas());
  }
  result.memory = memory_of(setup_.stream).use();
  // Ranks no longer wait for each other, so one of them may throw. An update checks the memory that it reads, but a
  // skipped one does not. Since damage may be the reason why a step is skipped, all memory is examined then.
  require_undamaged(result.skipped ? optimizer_.find_damage() : optimizer_.damage_seen_by_updates());
  if (audited) require_undamaged(optimizer_.find_frozen_damage());
  computed_ = true;
  return result;
}

}  // namespace lyceum
