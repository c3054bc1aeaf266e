#include "train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "kernels/elementwise.h"
#include "parallel/data/gradient_norm.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/transfers.h"
#include "plan/place.h"
#include "train/routing_sums.h"

namespace lyceum {

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
      summed_losses_(Tensor::zeros(setup.stream, DType::f64, {1 + 3 * config.model.layers}, MemoryKind::buffers)),
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
  const bool reads = first.first_stage() || model.stages().back()->last_stage();
  for (std::int64_t m = 0; m < micro_batches(config, setup.mesh.world.size()); ++m) {
    batches_.push_back(
        reads ? empty_batch(setup.stream, config.batch.micro, config.batch.seq_len)
              : Transformer::Batch{
                    .inputs = {}, .targets = {}, .sequences = config.batch.micro, .seq_len = config.batch.seq_len});
  }
  const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
  const ProcessGroup& pipeline = setup.mesh.pipeline;
  executor_.emplace(
      training_schedule(config, setup.mesh), pipeline.rank(), std::move(stages), pipeline,
      PipelineBoundary{
          .stream = setup.stream, .type = first.type(), .shape = first.boundary(tokens, config.batch.seq_len)});
  if (config.model.tie_embeddings && pipeline.size() > 1) {
    const int last = pipeline.size() - 1;
    ends_ = pipeline.split([&](int rank) { return rank == 0 || rank == last ? 0 : 1; }, "pipeline ends");
  }
}

void TrainStep::load_batches(const TokenLoader& loader, std::int64_t first_sample) {
  const ProcessGroup& data = setup_.mesh.data;
  const std::int64_t micro = config_.batch.micro;
  std::int64_t first = first_sample + data.rank() * micro;
  for (const Transformer::Batch& batch : batches_) {
    if (batch.inputs.defined()) load(setup_.stream, {&loader, first, micro}, config_.model.vocab, batch);
    first += data.size() * micro;
  }
}

TapeStage::Results TrainStep::forward(Transformer& stage, Tape& tape, const Transformer::Batch& batch,
                                      const Variable& x) {
  const Transformer::StageResult result = stage.forward_stage(tape, batch, x);
  TapeStage::Results results{.y = result.y};
  const auto add = [&](const Variable& loss, double weight, std::size_t place) {
    results.seeds.push_back(tape.seed(loss, weight));
    dispatch_accumulator(loss.value.dtype(), [&]<class A>() {
      launch(setup_.stream,
             AddScaled<A, double>{
                 .x = loss.value.span<A>(), .factor = weight, .y = summed_losses_.span<double>().subspan(place, 1)});
    });
  };
  const double per_sequence = 1.0 / static_cast<double>(config_.batch.global);
  if (stage.last_stage()) {
    add(result.losses.cross_entropy, per_sequence / static_cast<double>(config_.batch.seq_len), 0);
  }
  const std::array kinds{&result.losses.expert, &result.losses.device, &result.losses.z};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (std::size_t i = 0; i < kinds[kind]->size(); ++i) {  // one a MoE layer, or none
      const std::int64_t layer = stage.routed_layers()[i];
      add((*kinds[kind])[i], per_sequence,
          1 + kind * static_cast<std::size_t>(config_.model.layers) + static_cast<std::size_t>(layer));
    }
  }
  tape.on_gradient_final([this](Parameter& parameter) {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
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

void TrainStep::reduce_losses(StepResult& result) {
  setup_.mesh.data.all_reduce(std::span(losses_));      // tensor ranks hold the same
  setup_.mesh.pipeline.all_reduce(std::span(losses_));  // a loss is of one stage and zero on the others
  result.loss = losses_[0];
  auto layer = losses_.begin() + 1;
  for (double* kind : {&result.expert_loss, &result.device_loss, &result.z_loss}) {
    *kind = std::accumulate(layer, layer + config_.model.layers, 0.0);
    layer += config_.model.layers;
  }
}

/// False, with the culprit, where something is not finite: then nothing is changed.
bool TrainStep::update(StepResult& result) {
  losses_ = values_of<double>(setup_.stream, summed_losses_);
  const bool own_loss_finite = std::isfinite(losses_[0]);
  reduce_losses(result);
  result.grad_norm = gradient_norm(setup_.stream, setup_.mesh, optimizer_.shares(), model_.layers());
  if (!std::isfinite(result.grad_norm) || !std::isfinite(result.loss)) {
    const std::string parameter = optimizer_.nonfinite_gradient();
    if (!own_loss_finite) {
      result.culprit = "the loss of its tokens";
    } else if (!parameter.empty()) {
      result.culprit = "the gradient of " + parameter;
    }
    return false;
  }
  const double clip = config_.optim.clip_norm;
  optimizer_.step(result.lr, clip > 0 && result.grad_norm > clip ? clip / result.grad_norm : 1.0);
  zero_.values_changed();
  return true;
}

/// Forwards and backwards of all micro-batches, until this rank's shares hold the sum of all gradients. Gives the
/// stream the same work every time.
std::vector<TimedAction> TrainStep::passes() {
  launch(setup_.stream, Clear<double>{.y = summed_losses_.span<double>()});
  model_.clear_routing();
  std::vector<TimedAction> trace = executor_->run();
  const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
  zero_.finish_gradients();
  add_shared_table();
  return trace;
}

StepResult TrainStep::run(const TokenLoader& loader, std::int64_t first_sample, double lr) {
  StepResult result;
  result.lr = lr;
  load_batches(loader, first_sample);
  recorded_.run([&] { result.trace = passes(); });
  const ProfileScope timed(profile_of(setup_.stream), "optimizer");
  result.routing = whole_routing(config_, setup_.mesh, model_.routing());
  for (const RoutingSums& layer : result.routing) {
    result.load_imbalance = std::max(result.load_imbalance, imbalance(layer));
  }
  result.skipped = !update(result);
  result.memory = memory_of(setup_.stream).use();
  return result;
}

}  // namespace lyceum
