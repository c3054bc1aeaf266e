#include "train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "kernels/elementwise.h"
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
      numbers_(setup.stream, config.model.layers),
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
  const bool reads = first.first_stage() || model.stages().back()->last_stage();
  for (std::int64_t m = 0; m < micro_batches(config, setup.mesh.world.size()); ++m) {
    batches_.push_back(empty_batch(setup.stream, config.batch.micro, config.batch.seq_len, reads));
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
                 .x = loss.value.span<A>(), .factor = weight, .y = numbers_.losses().span<double>().subspan(place, 1)});
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

/// Everything that ends a step, without a look at any of its numbers: the device decides whether there is an update.
void TrainStep::launch_update() {
  const ProfileScope timed(profile_of(setup_.stream), "optimizer");
  const Stream& stream = setup_.stream;
  const Tensor losses = numbers_.losses();
  const std::span<double> loss = losses.span<double>().first(1);
  copy_on_device(stream, numbers_.own_loss().data(), loss.data(), sizeof(double));
  setup_.mesh.data.all_reduce_async(losses).wait();      // tensor ranks hold the same
  setup_.mesh.pipeline.all_reduce_async(losses).wait();  // a loss is of one stage and zero on the others
  gradient_norm_.launch(numbers_.gradient_norm());
  launch(stream, JudgeUpdate{.norm = numbers_.gradient_norm(),
                             .loss = loss,
                             .clip = config_.optim.clip_norm,
                             .numbers = numbers_.update()});
  const Tensor squares = weight_norms_.zeros();
  optimizer_.update(numbers_.update(), weight_norms_, squares);
  zero_.values_changed();
  weight_norms_.norms(squares, numbers_.weight_norms());
}

/// The host waits for the device here.
void TrainStep::read(StepResult& result) const {
  const StepNumbers::Values values = numbers_.read(setup_.stream);
  result.loss = values.losses[0];
  auto layer = values.losses.begin() + 1;
  for (double* kind : {&result.expert_loss, &result.device_loss, &result.z_loss}) {
    *kind = std::accumulate(layer, layer + config_.model.layers, 0.0);
    layer += config_.model.layers;
  }
  result.grad_norm = values.gradient_norm;
  result.weight_norm = values.weight_norm;
  result.update_norm = values.update_norm;
  result.skipped = values.skipped;
  if (!values.skipped) return;
  const std::string parameter = optimizer_.nonfinite_gradient();
  if (!std::isfinite(values.own_loss)) {
    result.culprit = "the loss of its tokens";
  } else if (!parameter.empty()) {
    result.culprit = "the gradient of " + parameter;
  }
}

/// Forwards and backwards of all micro-batches, until this rank's shares hold the sum of all gradients.
std::vector<TimedAction> TrainStep::passes() {
  launch(setup_.stream, Clear<double>{.y = numbers_.losses().span<double>()});
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
  optimizer_.prepare(lr, numbers_.update());
  recorded_.run([&] {
    result.trace = passes();
    launch_update();
  });
  read(result);
  if (!result.skipped) optimizer_.count_update();
  result.routing = whole_routing(config_, setup_.mesh, model_.routing());
  for (const RoutingSums& layer : result.routing) {
    result.load_imbalance = std::max(result.load_imbalance, imbalance(layer));
  }
  result.memory = memory_of(setup_.stream).use();
  return result;
}

}  // namespace lyceum
