#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "parallel/data/copies.h"
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

TrainStep::TrainStep(const Config& config, const RunSetup& setup, Transformer& model, Optimizer& optimizer)
    : config_(config), setup_(setup), model_(model), optimizer_(optimizer) {
  const auto bytes = static_cast<std::size_t>(config.parallel.bucket_mb * 1e6);
  for (const ParameterUnit::Group group : parameter_groups) {
    std::vector<Tensor> gradients;
    for (const auto& unit : model.units()) {
      if (unit->group() == group) gradients.push_back(unit->gradients());
    }
    buckets_[group] = std::make_unique<GradientBuckets>(gradients, copies(setup.mesh, group), bytes);
  }
  std::map<ParameterUnit::Group, std::size_t> next;
  for (const auto& unit : model.units()) {
    for (const auto& parameter : unit->parameters()) place_of_[parameter.get()] = places_.size();
    places_.push_back({.buckets = buckets_.at(unit->group()).get(),
                       .index = next[unit->group()]++,
                       .parameters = static_cast<std::int64_t>(unit->parameters().size()),
                       .waiting = 0});
  }
}

void TrainStep::gradient_final(Parameter& parameter) {
  UnitPlace& place = places_[place_of_.at(&parameter)];
  if (--place.waiting == 0) {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
    place.buckets->ready(place.index);
  }
}

void TrainStep::micro_batch(const TokenLoader& loader, std::int64_t index, bool last) {
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
  if (last) {
    for (UnitPlace& place : places_) place.waiting = place.parameters;
    tape.on_gradient_final([this](Parameter& parameter) { gradient_final(parameter); });
  }
  tape.backward(seeds);
}

double TrainStep::gradient_norm() const {
  double sum = 0;
  for (const ParameterUnit::Group group : parameter_groups) {
    sum += sum_over_parts(setup_.mesh, group, optimizer_.gradient_sum_of_squares(group));
  }
  return std::sqrt(sum);
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
  const std::int64_t micro_batches = config_.batch.global / (ranks * micro);
  StepResult result;
  result.lr = lr;
  losses_ = {};
  model_.clear_routing();
  optimizer_.clear_gradients();
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    micro_batch(loader, first_sample + (m * ranks + setup_.mesh.data.rank()) * micro, m + 1 == micro_batches);
  }
  {
    const ProfileScope timed(profile_of(setup_.stream), "gradient reduction");
    for (const auto& [group, buckets] : buckets_) buckets->finish();
  }
  const ProfileScope timed(profile_of(setup_.stream), "optimizer");
  const bool own_loss_finite = std::isfinite(losses_[0]);
  reduce_losses(result);
  reduce_routing(result);
  result.grad_norm = gradient_norm();
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
  return result;
}

}  // namespace lyceum
