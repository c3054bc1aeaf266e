#include "train/step/step_passes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "config/consistency.h"
#include "core/copy.h"
#include "kernels/tensor_kernels.h"
#include "model/placed_experts.h"
#include "model/prediction_modules.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/transfers.h"
#include "plan/mesh_rank.h"
#include "train/setup/samples.h"

namespace lyceum {

Schedule training_schedule(const Config& config, const Mesh& mesh) {
  const PipelineShape shape{.ranks = mesh.pipeline.size(),
                            .virtual_stages = config.parallel.virtual_stages,
                            .microbatches = static_cast<int>(micro_batches(config, mesh.world.size()))};
  Schedule schedule = with_transfers(make_schedule(config.parallel.schedule, shape));
  check_schedule(schedule);
  return schedule;
}

StepPasses::StepPasses(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero,
                       std::span<const UnitShare> shares, const StepNumbers& numbers)
    : config_(config), setup_(setup), model_(model), zero_(zero), shares_(shares), numbers_(numbers) {
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
  const std::int64_t passes = micro_batches(config, setup.mesh.world.size());
  if (config.balance.scope == BalanceScope::global) {
    std::vector<Mixture> mixtures;
    for (const auto& stage : model.stages()) {
      mixtures.insert(mixtures.end(), stage->mixtures().begin(), stage->mixtures().end());
    }
    running_loads_.emplace(setup.stream, config, mixtures, passes);
  }
  if (config.parallel.replicas > 0) replicas_.emplace();
  for (std::int64_t m = 0; m < passes; ++m) {
    batches_.push_back(allocate_batch(setup.stream, config, config.batch.micro, reads));
    batches_.back().step = numbers_.step();
    batches_.back().pass = m;
    batches_.back().running_loads = running_loads_ ? &*running_loads_ : nullptr;
    batches_.back().replicas = replicas_ ? &*replicas_ : nullptr;
    if (config.moe.top_k_start > 0) batches_.back().choices = numbers_.choices();
  }
  const ProcessGroup& pipeline = setup.mesh.pipeline;
  executor_.emplace(
      training_schedule(config, setup.mesh), pipeline.rank(), std::move(stages), pipeline,
      PipelineBoundary{
          .stream = setup.stream, .type = first.type(), .shape = first.boundary(tokens, config.batch.seq_len)},
      overlaps_batches(config.parallel) ? &setup.mesh.world.turns() : nullptr);
  if (shares_table(config) && pipeline.size() > 1) {
    pipeline_ends_ = new_pipeline_ends(pipeline);
  }
}

std::int64_t StepPasses::load(const TokenLoader& loader, std::int64_t first_sample, int data_rank) {
  const ProcessGroup& data = setup_.mesh.data;
  const std::int64_t micro = config_.batch.micro, copies = sample_copies(config_);
  // If the loader masks targets, their number depends on the data. All ranks need it, so all stages load the samples.
  const bool masked = loader.masked();
  std::array<std::int64_t, 1> targets{0};
  std::int64_t first = data_rank * micro;
  for (TokenBatch& batch : batches_) {
    batch.first_token = first * config_.batch.seq_len;
    if (masked || batch.inputs.defined()) {
      const auto counted = lyceum::load(setup_.stream, {&loader, first_sample + first / copies, micro / copies, copies},
                                        config_.model.vocab, batch);
      targets[0] = std::accumulate(counted.begin(), counted.end(), targets[0]);
    }
    first += data.size() * micro;
  }
  if (!masked) return config_.batch.global * config_.batch.seq_len;
  data.all_reduce(std::span(targets));
  return targets[0];
}

void StepPasses::measure_layers(bool on) {
  const auto numbers = [&](std::int64_t count) {
    return Tensor::empty(setup_.stream, DType::f64, {count}, MemoryKind::buffers);
  };
  layer_sums_.reset();
  if (on) layer_sums_.emplace(LayerSums{.squares = numbers(config_.model.layers), .largest_logit = numbers(1)});
  for (TokenBatch& batch : batches_) batch.layer_sums = on ? &*layer_sums_ : nullptr;
}

void StepPasses::set_attention_logits(const AttentionLogits* logits) {
  attention_logits_ = logits;
  for (TokenBatch& batch : batches_) batch.attention_logits = logits ? logits->largest() : Tensor();
}

std::vector<double> StepPasses::measured_layers() const {
  require(layer_sums_.has_value(), "the layers were not measured");
  const Mesh& mesh = setup_.mesh;
  // Without parallel.sequence, every tensor rank has all rows between the blocks.
  const bool counts = config_.parallel.sequence || mesh.tensor.rank() == 0;
  std::vector<double> measured = values_of<double>(setup_.stream, layer_sums_->squares);
  if (!counts) std::ranges::fill(measured, 0.0);
  std::array largest{values_of<double>(setup_.stream, layer_sums_->largest_logit)[0]};
  mesh.world.all_reduce(std::span(measured));
  mesh.world.all_reduce(std::span(largest), Reduction::max);
  const auto tokens = static_cast<double>(config_.batch.global * config_.batch.seq_len);
  for (double& squares : measured) squares = std::sqrt(squares / tokens);
  measured.push_back(largest[0]);
  return measured;
}

std::vector<TimedAction> StepPasses::run(PassObserver* observer) {
  observer_ = observer;
  if (layer_sums_) {
    launch(setup_.stream, Clear<double>{.y = layer_sums_->squares.span<double>()});
    const std::array lowest{-std::numeric_limits<double>::infinity()};
    copy_to_device(setup_.stream, layer_sums_->largest_logit.span<double>(), std::span<const double>(lowest));
  }
  if (attention_logits_) attention_logits_->reset();
  launch(setup_.stream, Clear<double>{.y = numbers_.own().losses()});
  model_.clear_routing();
  if (replicas_) {
    replicas_->clear();
    for (PlacedExperts* const experts : model_.placed_experts()) experts->forget_replicas();
  }
  std::vector<TimedAction> trace = executor_->run();
  observer_ = nullptr;
  const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
  zero_.finish_gradients();
  sum_shared_table_gradients();
  return trace;
}

std::vector<ReplicaSums> StepPasses::replica_sums() const {
  if (!replicas_) return {};
  std::vector<ReplicaSums> all = replicas_->sums();
  for (const PlacedExperts* const experts : model_.placed_experts()) {
    const auto [received, bytes] = experts->replica_transfers();
    const auto found = std::ranges::find(all, experts->id(), &ReplicaSums::id);
    if (found == all.end()) continue;
    found->counts.sent = received;
    found->counts.bytes = bytes;
  }
  return all;
}

/// sum += weight · times[0] · loss
void StepPasses::add_loss(const Variable& loss, double weight, std::span<double> sum,
                          std::span<const double> times) const {
  dispatch_accumulator(loss.value.dtype(), [&]<class A>() {
    launch(setup_.stream, AddScaled<A, double>{.x = loss.value.span<A>(), .factor = weight, .y = sum, .times = times});
  });
}

/// Returns the gradient of a loss that counts with `factor` and numbers_.loss_weight(), which the device knows.
Tensor StepPasses::target_weight(const Variable& loss, double factor) const {
  const Tensor gradient = Tensor::zeros(setup_.stream, loss.value.dtype(), loss.value.shape());
  dispatch_accumulator(gradient.dtype(), [&]<class A>() {
    launch(setup_.stream, AddScaled<double, A>{.x = numbers_.loss_weight(), .factor = factor, .y = gradient.span<A>()});
  });
  return gradient;
}

namespace {

/// Returns the factor of a loss of the head in the whole loss.
double factor_of_head_loss(const Config& config, LossKind kind) {
  switch (kind) {
    case LossKind::mtp: return module_weight(config.mtp);
    case LossKind::consistency: return config.model.consistency;
    default: return config.model.z_loss;
  }
}

}  // namespace

TapeStage::Results StepPasses::forward(Transformer& stage, Tape& tape, const TokenBatch& batch, const Variable& x) {
  const Transformer::StageResult result = stage.forward_stage(tape, batch, x);
  const StepNumbers::Sums sums = numbers_.own();
  TapeStage::Results results{.y = result.y};
  // Adds factor · loss, a mean over the targets of the global batch.
  const auto add_head_loss = [&](const Variable& loss, double factor, std::span<double> sum) {
    results.seeds.push_back({loss, target_weight(loss, factor)});
    add_loss(loss, factor, sum, numbers_.loss_weight());
  };
  if (stage.last_stage()) add_head_loss(result.losses.cross_entropy, 1, sums.cross_entropy());
  const double per_sequence = 1.0 / static_cast<double>(config_.batch.global);
  for (const auto& [layer, loss] : result.losses.layers) {
    const auto index = static_cast<std::size_t>(numbers_.loss_table().index(loss.kind, layer));
    const std::span<double> sum = sums.layer_losses().subspan(index, 1);
    if (!is_per_sequence(loss.kind)) {
      add_head_loss(loss.value, factor_of_head_loss(config_, loss.kind), sum);
      continue;
    }
    results.seeds.push_back(tape.seed(loss.value, per_sequence));
    add_loss(loss.value, per_sequence, sum);
  }
  if (observer_ && !stage.last_stage()) observer_->on_output(stage_index(stage), result.y.value);
  tape.on_gradient_final([this](Parameter& parameter) {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
    if (observer_) {
      ParameterUnit& unit = *parameter.unit;
      if (unit.memory()) unit.memory()->need_gradients(unit);  // allocates them if no pass has added to them yet
      parameter.clear_empty_gradient(setup_.stream);
      observer_->on_gradient(parameter);
    }
    zero_.gradient_final(parameter);
  });
  return results;
}

/// Returns the index of a stage of this rank among all stages of the model.
int StepPasses::stage_index(const Transformer& stage) const {
  const auto at = std::ranges::find(model_.stages(), &stage, &std::unique_ptr<Transformer>::get);
  return static_cast<int>(at - model_.stages().begin()) * setup_.mesh.pipeline.size() + setup_.mesh.pipeline.rank();
}

/// Sums the gradient of the embedding table over the first and the last stage, if both hold the table.
void StepPasses::sum_shared_table_gradients() {
  if (!pipeline_ends_ || !model_.shared_table()) return;
  for (const UnitShare& share : shares_) {
    if (share.unit == model_.shared_table()) pipeline_ends_->all_reduce_async(share.gradients).wait();
  }
}

}  // namespace lyceum
