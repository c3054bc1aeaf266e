#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "parallel/data/gradient_norm.h"
#include "train/evaluator.h"
#include "train/routing_sums.h"

namespace lyceum {

namespace {

double scalar(const Variable& variable) {
  double value = 0;
  dispatch_accumulator(variable.value.dtype(),
                       [&]<class A>() { value = static_cast<double>(*variable.value.data<A>()); });
  return value;
}

}  // namespace

std::int64_t micro_batches(const Config& config, const Mesh& mesh) {
  return config.batch.global / (mesh.data.size() * config.batch.micro);
}

Zero::Options zero_options(const Config& config, const Mesh& mesh) {
  return {
      .stage = config.parallel.zero, .micro_batches = micro_batches(config, mesh), .type = working_type(config.run)};
}

TrainStep::TrainStep(const Config& config, const RunSetup& setup, Transformer& model, Zero& zero, Optimizer& optimizer)
    : config_(config), setup_(setup), model_(model), zero_(zero), optimizer_(optimizer) {}

void TrainStep::micro_batch(const TokenLoader& loader, std::int64_t index) {
  const Transformer::Batch batch = load_batch(setup_.stream, config_, loader, index, config_.batch.micro);
  Tape tape(setup_.stream);
  const Transformer::Losses losses = model_.forward(tape, batch);

  const double per_sequence = 1.0 / static_cast<double>(config_.batch.global);
  const double per_token = per_sequence / static_cast<double>(config_.batch.seq_len);
  std::vector<Tape::Seed> seeds{tape.seed(losses.cross_entropy, per_token)};
  losses_[0] += scalar(losses.cross_entropy) * per_token;
  const std::array kinds{&losses.expert, &losses.device, &losses.z};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const Variable& loss : *kinds[kind]) {
      seeds.push_back(tape.seed(loss, per_sequence));
      losses_[kind + 1] += scalar(loss) * per_sequence;
    }
  }
  tape.on_gradient_final([this](Parameter& parameter) {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
    zero_.gradient_final(parameter);
  });
  tape.backward(seeds);
}

void TrainStep::reduce_losses(StepResult& result) {
  setup_.mesh.data.all_reduce(std::span(losses_));  // tensor ranks hold the same
  result.loss = losses_[0];
  result.expert_loss = losses_[1];
  result.device_loss = losses_[2];
  result.z_loss = losses_[3];
}

void TrainStep::reduce_routing(StepResult& result) {
  result.routing = summed_over(setup_.mesh.data_tensor, model_.routing());
  for (const RoutingSums& layer : result.routing) {
    result.load_imbalance = std::max(result.load_imbalance, imbalance(layer));
  }
}

StepResult TrainStep::run(const TokenLoader& loader, std::int64_t first_sample, double lr) {
  const std::int64_t ranks = setup_.mesh.data.size(), micro = config_.batch.micro;
  StepResult result;
  result.lr = lr;
  losses_ = {};
  model_.clear_routing();
  for (std::int64_t m = 0; m < micro_batches(config_, setup_.mesh); ++m) {
    micro_batch(loader, first_sample + (m * ranks + setup_.mesh.data.rank()) * micro);
  }
  {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
    zero_.finish_gradients();
  }
  const ProfileScope timed(profile_of(setup_.stream), "optimizer");
  const bool own_loss_finite = std::isfinite(losses_[0]);
  reduce_losses(result);
  reduce_routing(result);
  result.grad_norm = gradient_norm(setup_.stream, setup_.mesh, optimizer_.shares(), model_.layers());
  result.skipped = !std::isfinite(result.grad_norm) || !std::isfinite(result.loss);
  if (result.skipped) {
    const std::string parameter = optimizer_.nonfinite_gradient();
    if (!own_loss_finite) {
      result.culprit = "the loss of its tokens";
    } else if (!parameter.empty()) {
      result.culprit = "the gradient of " + parameter;
    }
    return result;
  }
  const double clip = config_.optim.clip_norm;
  optimizer_.step(lr, clip > 0 && result.grad_norm > clip ? clip / result.grad_norm : 1.0);
  zero_.values_changed();
  return result;
}

}  // namespace lyceum
