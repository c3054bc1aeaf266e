#include "train/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "core/copy.h"
#include "kernels/digest.h"
#include "kernels/elementwise.h"
#include "parallel/data/copies.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/transfers.h"
#include "plan/place.h"
#include "train/routing_sums.h"
#include "train/schedule.h"

namespace lyceum {

bool due(std::int64_t steps, std::int64_t every) { return every > 0 && steps % every == 0; }

Zero::Options zero_options(const Config& config, const Mesh& mesh) {
  return {.stage = config.parallel.zero,
          .micro_batches = micro_batches(config, mesh.world.size()),
          .type = working_type(config.run)};
}

Schedule training_schedule(const Config& config, const Mesh& mesh) {
  const PipelineShape shape{.ranks = mesh.pipeline.size(),
                            .virtual_stages = config.parallel.virtual_stages,
                            .microbatches = static_cast<int>(micro_batches(config, mesh.world.size()))};
  Schedule schedule = with_transfers(make_schedule(config.parallel.schedule, shape));
  check_schedule(schedule);
  return schedule;
}

TrainStep::TrainStep(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero, Optimizer& optimizer)
    : config_(config),
      setup_(setup),
      model_(model),
      zero_(zero),
      optimizer_(optimizer),
      losses_(loss_names(config)),
      numbers_(setup.stream, std::ssize(losses_) * config.model.layers),
      gradient_norm_(setup.stream, setup.mesh, optimizer.shares(), model.layers()),
      weight_norms_(setup.stream, setup.mesh, optimizer.shares(), model.layers(), 2),
      recorded_(setup.stream, config.run.cuda_graph && setup.mesh.world.size() == 1) {
  std::vector<TapeStage*> stages;
  for (const auto& stage : model.stages()) {
    stages_.push_back(std::make_unique<TapeStage>(
        setup.stream, [this, part = stage.get()](Tape& tape, int microbatch, const Variable& x) {
          return forward(*part, tape, batches_[static_cast<std::size_t>(microbatch)], x);
        }));
    stages.push_back(stages_.back().get());
  }
  const Transformer& first = *model.stages().front();
  const bool reads = std::ranges::any_of(model.stages(), [](const auto& stage) { return stage->reads_tokens(); });
  const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
  for (std::int64_t m = 0; m < micro_batches(config, setup.mesh.world.size()); ++m) {
    batches_.push_back(empty_batch(setup.stream, config, config.batch.micro, reads));
    batches_.back().step = numbers_.step();
    if (config.moe.top_k_start > 0) batches_.back().choices = numbers_.choices();
  }
  const ProcessGroup& pipeline = setup.mesh.pipeline;
  executor_.emplace(
      training_schedule(config, setup.mesh), pipeline.rank(), std::move(stages), pipeline,
      PipelineBoundary{
          .stream = setup.stream, .type = first.type(), .shape = first.boundary(tokens, config.batch.seq_len)},
      overlaps_batches(config.parallel) ? &setup.mesh.world.turns() : nullptr);
  if (config.model.tie_embeddings && pipeline.size() > 1) {
    const int last = pipeline.size() - 1;
    ends_ = pipeline.split([&](int rank) { return rank == 0 || rank == last ? 0 : 1; }, "pipeline ends");
  }
}

/// What data rank `data_rank` computes. Returns how many targets of the global batch count. Where not all do, every
/// stage counts: all must know the same.
std::int64_t TrainStep::load_batches(const TokenLoader& loader, std::int64_t first_sample, int data_rank) {
  const ProcessGroup& data = setup_.mesh.data;
  const std::int64_t micro = config_.batch.micro;
  const bool masked = loader.masked();
  std::array<std::int64_t, 1> targets{0};
  std::int64_t first = data_rank * micro;
  for (Transformer::Batch& batch : batches_) {
    batch.first_token = first * config_.batch.seq_len;
    if (masked || batch.inputs.defined()) {
      const auto counted = load(setup_.stream, {&loader, first_sample + first, micro}, config_.model.vocab, batch);
      targets[0] = std::accumulate(counted.begin(), counted.end(), targets[0]);
    }
    first += data.size() * micro;
  }
  if (!masked) return config_.batch.global * config_.batch.seq_len;
  data.all_reduce(std::span(targets));
  return targets[0];
}

TapeStage::Results TrainStep::forward(Transformer& stage, Tape& tape, const Transformer::Batch& batch,
                                      const Variable& x) {
  const Transformer::StageResult result = stage.forward_stage(tape, batch, x);
  TapeStage::Results results{.y = result.y};
  const auto add = [&](const Variable& loss, double weight, std::span<const double> times, std::size_t place) {
    dispatch_accumulator(loss.value.dtype(), [&]<class A>() {
      launch(setup_.stream, AddScaled<A, double>{.x = loss.value.span<A>(),
                                                 .factor = weight,
                                                 .y = numbers_.own().losses().subspan(place, 1),
                                                 .times = times});
    });
  };
  if (stage.last_stage()) {
    const Variable& loss = result.losses.cross_entropy;
    const Tensor gradient = Tensor::empty(setup_.stream, loss.value.dtype(), loss.value.shape());
    dispatch_accumulator(gradient.dtype(), [&]<class A>() {
      launch(setup_.stream, Cast<double, A>{.x = numbers_.loss_weight(), .y = gradient.span<A>()});
    });
    results.seeds.push_back({loss, gradient});
    add(loss, 1, numbers_.loss_weight(), 0);
  }
  const double per_sequence = 1.0 / static_cast<double>(config_.batch.global);
  for (const auto& [layer, loss] : result.losses.layers) {
    const std::int64_t kind = std::ranges::find(losses_, loss.name) - losses_.begin();
    require(kind < std::ssize(losses_), "layer {} has an unexpected loss {}", layer, loss.name);
    results.seeds.push_back(tape.seed(loss.value, per_sequence));
    add(loss.value, per_sequence, {}, static_cast<std::size_t>(1 + kind * config_.model.layers + layer));
  }
  if (seen_ && !stage.last_stage()) look_at_output(stage, result.y.value);
  tape.on_gradient_final([this](Parameter& parameter) {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
    if (seen_ || digests_) look_at_gradient(parameter);
    zero_.gradient_final(parameter);
  });
  return results;
}

/// Both stages that hold a tied table get the sum of the gradients of its two uses.
void TrainStep::add_shared_table() {
  if (!ends_ || !model_.shared_table()) return;
  for (const UnitShare& share : optimizer_.shares()) {
    if (share.unit == model_.shared_table()) ends_->all_reduce_async(share.gradients).wait();
  }
}

/// The one place where ranks agree on what becomes of a step. What several ranks hold copies of is taken from one of
/// them, and the others give 0 · x, which is zero, or NaN where their copy is not finite: the sums are those of one
/// copy, the same bits on all ranks, and not finite when anybody's are not.
void TrainStep::agree_on_numbers() {
  const Stream& stream = setup_.stream;
  const Mesh& mesh = setup_.mesh;
  const StepNumbers::Table own = numbers_.own(), agreed = numbers_.agreed();
  launch(stream, Clear<double>{.y = agreed.all().span<double>()});
  launch(stream,
         AddScaled<double, double>{.x = own.norm(), .factor = mesh.world.rank() == 0 ? 1.0 : 0.0, .y = agreed.norm()});
  launch(stream, AddScaled<double, double>{
                     .x = own.losses(), .factor = mesh.tensor.rank() == 0 ? 1.0 : 0.0, .y = agreed.losses()});
  mesh.data_tensor.all_reduce_async(agreed.all()).wait();
  mesh.pipeline.all_reduce_async(agreed.all()).wait();  // a loss is of one stage and zero on the others
}

/// Everything that ends a step, without a look at any of its numbers: the device decides whether there is an update.
void TrainStep::launch_update() {
  const ProfileScope timed(profile_of(setup_.stream), "optimizer");
  optimizer_.leave_out_frozen();
  gradient_norm_.launch(numbers_.own().norm());
  agree_on_numbers();
  launch(setup_.stream, JudgeUpdate{.norm = numbers_.agreed().norm(),
                                    .loss = numbers_.agreed().loss(),
                                    .loss_weight = numbers_.loss_weight(),
                                    .clip = config_.optim.clip_norm,
                                    .numbers = numbers_.update()});
  const Tensor squares = weight_norms_.zeros();
  optimizer_.update(numbers_.update(), weight_norms_, squares);
  zero_.values_changed();
  weight_norms_.norms(squares, numbers_.weight_norms());
  for (const auto& stage : model_.stages()) stage->update_routers(numbers_.update());
}

/// The host waits for the device here.
StepNumbers::Values TrainStep::read(StepResult& result) const {
  const StepNumbers::Values values = numbers_.read(setup_.stream);
  result.loss = values.losses[0];
  auto layer = values.losses.begin() + 1;
  for (const std::string& name : losses_) {
    result.losses.push_back({name, std::accumulate(layer, layer + config_.model.layers, 0.0)});
    layer += config_.model.layers;
  }
  result.grad_norm = values.gradient_norm;
  result.weight_norm = values.weight_norm;
  result.update_norm = values.update_norm;
  result.skipped = values.skipped;
  return values;
}

/// What the shares of this rank hold.
Finding TrainStep::nonfinite_share() const {
  const std::string weight = optimizer_.nonfinite_weight();
  if (!weight.empty()) return {Finding::Kind::weight, 0, "the weight " + weight};
  const std::string gradient = optimizer_.nonfinite_gradient();
  if (!gradient.empty()) return {Finding::Kind::sum, 0, "the gradient of " + gradient};
  return {};
}

/// What a step that was left out has left on this rank.
Finding TrainStep::own_nonfinite(const StepNumbers::Values& values) const {
  using Kind = Finding::Kind;
  Finding found = nonfinite_share();
  if (!std::isfinite(values.own_gradient_norm)) found.add({Kind::norm, 0, "the gradient norm"});
  if (!std::isfinite(values.own_loss)) found.add({Kind::loss, 0, "the loss of its tokens"});
  return found;
}

/// Notes what a stage is about to hand over to the next one.
void TrainStep::look_at_output(const Transformer& stage, const Tensor& y) {
  if (all_finite(setup_.stream, y, {0, y.size()})) return;
  const auto place = std::ranges::find(model_.stages(), &stage, &std::unique_ptr<Transformer>::get);
  const auto number = (place - model_.stages().begin()) * setup_.mesh.pipeline.size() + setup_.mesh.pipeline.rank();
  seen_->add({Finding::Kind::output, number, fmt::format("the output of pipeline stage {}", number)});
}

/// Notes a gradient that this rank is about to hand over to a sum over copies.
void TrainStep::look_at_gradient(const Parameter& parameter) {
  ParameterUnit& unit = *parameter.unit;
  if (unit.memory()) unit.memory()->need_gradients(unit);  // nothing may have been added to it
  const Tensor& gradient = parameter.gradient;
  const Finding place{Finding::Kind::gradient, model_.layers() - unit.layer(), "the gradient of " + parameter.name};
  if (seen_ && !all_finite(setup_.stream, gradient, {0, gradient.size()})) seen_->add(place);
  if (digests_) digests_->add(place, digest_of(setup_.stream, gradient));
}

/// Notes the sums that updates go by.
void TrainStep::digest_sums() {
  for (const UnitShare& share : optimizer_.shares()) {
    const ParameterUnit& unit = *share.unit;
    digests_->add({Finding::Kind::sum, model_.layers() - unit.layer(), "the summed gradient of " + unit.name()},
                  digest_of(setup_.stream, share.gradients));
  }
}

/// How many data ranks further a rank is that can compute what this one does, the same bits: it holds copies of the
/// same parameters, and its processor is the same. 0 where there is none.
int TrainStep::data_ranks_to_copy() const {
  const Mesh& mesh = setup_.mesh;
  const auto alike = [&](const RankPlace& place) {
    return place.processor == setup_.places[0].processor && place.threads == setup_.places[0].threads;
  };
  // Algorithms that a rank has just timed are not yet those of all, and a loss over the batch adds up in rank order.
  if (!computed_ || config_.balance.scope == BalanceScope::batch || !std::ranges::all_of(setup_.places, alike))
    return 0;
  const int tensor = mesh.tensor.size();
  const int shift = std::lcm(mesh.expert.size() * mesh.expert_tensor.size(), tensor) / tensor;
  return shift < mesh.data.size() ? shift : 0;
}

GradientDigests TrainStep::digests_of_passes(std::vector<TimedAction>& trace) {
  GradientDigests digests;
  digests_ = &digests;
  trace = passes();
  digest_sums();
  digests_ = nullptr;
  return digests;
}

/// Collective. A step is the same bits whenever and wherever it is computed: where it is not, a processor, memory or a
/// message is at fault. The last passes are those of the update.
std::vector<TimedAction> TrainStep::replayed_passes(const TokenLoader& loader, std::int64_t step,
                                                    std::int64_t first_sample) {
  const ProcessGroup &world = setup_.mesh.world, &data = setup_.mesh.data;
  const std::string advice = advice_on_old_faults(std::max<std::int64_t>(0, step - config_.run.replay_every));
  std::vector<TimedAction> trace;
  const GradientDigests first = digests_of_passes(trace);
  GradientDigests of_other;
  const int shift = data_ranks_to_copy();
  if (shift > 0) {
    load_batches(loader, first_sample, (data.rank() + shift) % data.size());
    of_other = digests_of_passes(trace);
    load_batches(loader, first_sample, data.rank());
  }
  const GradientDigests again = digests_of_passes(trace);
  const Finding changed = agree(world, first.difference(again));
  require(changed.kind == Finding::Kind::none,
          "computed twice, step {} gave two results: {}: a fault of a processor, memory or network? {}", step,
          changed.what, advice);
  if (shift == 0) return trace;
  const Finding differs = agree(world, again.difference(data, shift, of_other));
  if (differs.kind == Finding::Kind::none) return trace;
  std::set<std::pair<int, int>> pairs;
  for (const int rank : differs.ranks) {
    const int at = setup_.mesh.shape.index_of(rank, world.size()).data;
    pairs.insert(std::minmax({rank, rank + ((at + shift) % data.size() - at) * setup_.mesh.tensor.size()}));
  }
  std::string ranks;
  for (const auto& [one, other] : pairs) ranks += fmt::format("{}{} and {}", ranks.empty() ? "" : ", ", one, other);
  fail(ExitCode::failed,
       "ranks {} computed step {} from the same tokens, with two results: {}: a fault of a processor? {}", ranks, step,
       differs.what, advice);
}

/// Collective. `step`: the number of the one that is being made, or of those that are done.
void TrainStep::compare_copies(std::int64_t step) const {
  const Mesh& mesh = setup_.mesh;
  const std::int64_t last = std::max<std::int64_t>(0, step - config_.run.audit_every);
  const auto whole = [&](const ParameterUnit& unit) {  // ZeRO 3 keeps parts alone, and gathers them for a while
    const bool parts = config_.parallel.zero >= 3 && copies(mesh, unit.group()).size() > 1;
    return unit.size() > 0 && (!parts || unit.role() == ParameterUnit::Role::buffer);
  };
  zero_.await_values();
  for (const ParameterUnit::Group group : parameter_groups) {
    std::vector<const ParameterUnit*> units;
    for (const ParameterUnit* unit : model_.units()) {
      if (unit->group() == group && whole(*unit)) units.push_back(unit);
    }
    require_equal_copies(setup_.stream, copies(mesh, group), units, last);
  }
  if (const ParameterUnit* table = model_.shared_table(); ends_ && table && whole(*table)) {
    require_equal_copies(setup_.stream, *ends_, std::span(&table, 1), last);
  }
}

void TrainStep::require_undamaged() const { require_undamaged(optimizer_.look_for_damage()); }

void TrainStep::audit(std::int64_t steps) const {
  require_undamaged();
  if (config_.run.audit_every > 0 && setup_.mesh.world.size() > 1) compare_copies(steps);
}

void TrainStep::require_undamaged(const std::string& damage) const {
  // The one that reports the error names this rank and its host: `main`, or a checkpoint that is not saved.
  require(damage.empty(), "{}: a fault of memory? {}", damage, advice_on_fresh_faults);
}

/// Collective. Sums over copies and norms show that something is not finite, and not who made it. A step that was left
/// out moved no weight, so its passes are made again, and each rank looks at what it makes before others get it.
std::string TrainStep::find_culprit(const StepNumbers::Values& values) {
  const ProcessGroup& world = setup_.mesh.world;
  const Finding first = agree(world, own_nonfinite(values));
  if (world.size() == 1 || first.kind == Finding::Kind::weight) return first.what;
  Finding seen;
  seen_ = &seen;
  passes();
  seen_ = nullptr;
  optimizer_.leave_out_frozen();
  seen.add(nonfinite_share());
  const Finding second = agree(world, seen);
  if (second.kind == Finding::Kind::none) {
    return first.what + " (not when the step was computed again: a fault of memory or network?)";
  }
  return second.kind > first.kind ? second.what : first.what;
}

/// Forwards and backwards of all micro-batches, until this rank's shares hold the sum of all gradients.
std::vector<TimedAction> TrainStep::passes() {
  launch(setup_.stream, Clear<double>{.y = numbers_.own().losses()});
  model_.clear_routing();
  std::vector<TimedAction> trace = executor_->run();
  const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
  zero_.finish_gradients();
  add_shared_table();
  return trace;
}

StepResult TrainStep::run(const TokenLoader& loader, std::int64_t step, std::int64_t first_sample, double lr) {
  StepResult result;
  result.lr = lr;
  result.targets = load_batches(loader, first_sample, setup_.mesh.data.rank());
  optimizer_.prepare(lr, numbers_.update());
  numbers_.set_step(setup_.stream, step, choices_of_step(config_.moe, step, config_.run.steps), result.targets);
  const bool audited = due(step + 1, config_.run.audit_every);
  const auto update = [&] {
    if (audited && setup_.mesh.world.size() > 1) compare_copies(step + 1);  // that the passes used
    launch_update();
  };
  if (due(step + 1, config_.run.replay_every)) {
    recorded_.forget();
    result.trace = replayed_passes(loader, step + 1, first_sample);
    update();
  } else {
    recorded_.run([&] {
      result.trace = passes();
      update();
    });
  }
  const StepNumbers::Values values = read(result);
  if (!result.skipped) {
    optimizer_.count_update();
  } else if (result.targets > 0) {
    result.culprit = find_culprit(values);
  }
  result.routing = whole_routing(config_, setup_.mesh, model_.routing());
  for (const RoutingSums& layer : result.routing) {
    result.load_imbalance = std::max(result.load_imbalance, imbalance(layer));
  }
  result.memory = memory_of(setup_.stream).use();
  // No other rank waits for this one here. What is not finite may well come from damage, which such a step does not
  // see.
  require_undamaged(result.skipped ? optimizer_.look_for_damage() : optimizer_.damage());
  if (audited) require_undamaged(optimizer_.look_for_frozen_damage());
  computed_ = true;
  return result;
}

}  // namespace lyceum
