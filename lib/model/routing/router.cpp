#include "model/routing/router.h"

#include "autograd/activation.h"
#include "autograd/linear.h"
#include "autograd/noise.h"
#include "autograd/rms_norm.h"
#include "autograd/row_penalty.h"
#include "config/router_penalty.h"
#include "core/copy.h"
#include "kernels/balance_bias.h"
#include "model/routing/balance_loss.h"
#include "model/tensor_pattern.h"

namespace lyceum {

std::vector<SublayerTensor> router_tensors(const Config& config, const Mixture& mixture) {
  const std::int64_t hidden = config.model.hidden, width = config.moe.router_hidden, choices = mixture.choices();
  const auto tensor = [](const char* name, const Shape& shape, const Initial& initial, bool trained = true) {
    return SublayerTensor{.name = name,
                          .shape = shape,
                          .initial = initial,
                          .part = TensorPart::routers,
                          .trained = trained,
                          .rows_are_choices = true};
  };
  const double std = config.model.init_std;
  const SublayerTensor scores = tensor("gate/weight", {choices, hidden}, std);
  std::vector<SublayerTensor> biased{scores};
  if (mixture.router_bias) biased.push_back(tensor("gate/bias", {choices}, 0.0));
  switch (mixture.router) {
    case RouterKind::sigmoid:
    case RouterKind::sqrt_softplus:
      biased.push_back(tensor("gate/e_score_correction_bias", {choices}, 0.0, false));
      return biased;
    case RouterKind::random: return {tensor("gate/weight", {choices, hidden}, std, false)};
    case RouterKind::mlp:
      return {{"gate/in/weight", {width, hidden}, std, TensorPart::routers},
              tensor("gate/weight", {choices, width}, std)};
    case RouterKind::noisy:
      return {scores, tensor("gate/noise/weight", {choices, hidden}, std), tensor("gate/noise_scale", {choices}, {})};
    case RouterKind::hash:
    case RouterKind::uniform: return {};
    default: return biased;
  }
}

Router::Router(const Config& config, const Mixture& mixture, const std::string& prefix, const Units& units,
               const Placement& groups)
    : mixture_(mixture),
      balance_(config.balance),
      even_(config.moe.even_routing),
      norm_eps_(config.model.norm_eps),
      seed_(config.run.seed),
      penalty_(config.optim.router_penalty),
      penalty_from_(first_penalised_row(config.optim, mixture.id.site)),
      groups_(groups) {
  for (const SublayerTensor& tensor : router_tensors(config, mixture)) {
    ParameterUnit& unit = tensor.trained ? units.trained : units.untrained;
    parameters_.push_back(
        &unit.add(whole_parameter(prefix + "/" + tensor.name, tensor.shape, tensor.initial, tensor.decays())));
  }
  if (mixture_.router_bias) logit_bias_ = parameters_.at(1);
  if (scores_of(mixture_.router) == Scores::softmax) return;
  bias_ = parameters_.back();
  const std::vector<TensorPattern> trained = tensor_patterns(config.optim.train_only);
  const bool frozen = config.optim.lora_rank > 0 || (!trained.empty() && named_elements(*bias_, trained).empty());
  if (frozen) balance_.bias_rate = 0;
}

std::int64_t Router::random_layer() const {
  // More than the number of layers, so that the two routers of a block have different random numbers.
  constexpr std::int64_t of_attention = 1 << 15;
  return mixture_.id.layer + (mixture_.id.site == Site::attention ? of_attention : 0);
}

Parameter* Router::choice_rows() const {
  if (!has_scores(mixture_.router)) return nullptr;
  return parameters_.at(mixture_.router == RouterKind::mlp ? 1 : 0);
}

Variable Router::logits(Tape& tape, const Pass& pass, const Variable& x) const {
  if (mixture_.router == RouterKind::mlp) {
    const Variable inner = tape.apply(Relu{}, tape.apply(Linear{parameters_[0]}, x));
    return tape.apply(PreciseLinear{parameters_[1]}, inner);
  }
  const Variable logits = tape.apply(PreciseLinear{parameters_[0], logit_bias_}, x);
  if (mixture_.router != RouterKind::noisy || !pass.training()) return logits;
  const Variable noise = tape.apply(PreciseLinear{parameters_[1]}, x);
  const NoisyLogits noisy{.seed = seed_,
                          .layer = random_layer(),
                          .first = pass.batch.first_token + pass.layout.own().first,
                          .step = pass.batch.step};
  return tape.apply(noisy, logits, tape.apply(RmsNorm{parameters_[2], norm_eps_}, noise));
}

Tensor Router::step_choices(const Pass& pass) const { return mixture_.placed() ? pass.batch.choices : Tensor(); }

Router::Choices Router::forward(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const {
  if (mixture_.k == 0) {
    const Tensor none = Tensor::empty(tape.stream(), DType::i32, {pass.layout.own().count, 0});
    return {.gates = {}, .index = none, .load = {}, .logits = logits(tape, pass, x)};
  }
  Choices choices = choose(tape, pass, x, tally);
  if (pass.batch.chosen) pass.batch.chosen->push_back({mixture_.id, choices.index, choices.gates.value});
  return choices;
}

Router::Choices Router::choose(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const {
  const RoutingTally counted = tally && !tape.replaying() ? *tally : RoutingTally{};
  if (mixture_.router == RouterKind::hash) {
    require(pass.batch.inputs.defined(), "layer {} routes by token ids, but the batch contains none",
            mixture_.id.layer);
    const Range own = pass.layout.own();
    const auto [gates, index] = tape.apply(RouteByHash{.tokens = pass.batch.inputs.slice(own.first, own.count),
                                                       .layer = mixture_.id.layer,
                                                       .experts = mixture_.choices(),
                                                       .type = accumulator_of(x.value.dtype()),
                                                       .tally = counted});
    return {.gates = gates, .index = index.value, .load = {}};
  }
  if (mixture_.router == RouterKind::uniform) return choose_uniformly(tape, pass, x.value.dtype(), counted);
  Route route{.k = mixture_.k,
              .scores = scores_of(mixture_.router),
              .rule = mixture_.gates,
              .gate_scale = mixture_.gate_scale,
              .choices = step_choices(pass),
              .bias = bias_ ? bias_->value : Tensor(),
              .skip = mixture_.placed() ? pass.skip_top : 0,
              .always_on = mixture_.never_chosen(),
              .even = even_,
              .first_token = pass.batch.first_token + pass.layout.own().first,
              .entropy = has_information_losses(balance_) && pass.training(),
              .tally = counted};
  if (mixture_.group_limit > 0) {
    route.group = tensor_of(tape.stream(), {mixture_.choices()}, groups_.owner);
    route.groups = groups_.ranks();
    route.group_limit = mixture_.group_limit;
    route.group_score = mixture_.group_score;
  }
  if ((has_losses(balance_) && pass.training()) || counted.counts.defined()) {
    route.sequences = pass.layout.sequences();
    route.seq_len = pass.layout.seq_len();
    route.first = pass.layout.own().first;
  }
  const Variable scored = logits(tape, pass, x);
  const auto [gates, index, load] = tape.apply(route, scored);
  return {.gates = gates, .index = index.value, .load = load, .logits = scored};
}

Router::Choices Router::choose_uniformly(Tape& tape, const Pass& pass, DType type, const RoutingTally& tally) const {
  const Range own = pass.layout.own();
  const bool by_position = !pass.training() && !pass.cache;  // a text's tokens are numbered as generation numbers them
  const double all_gates = mixture_.gates == Gates::ones ? static_cast<double>(mixture_.k) : 1;
  const RouteUniformly route{.seed = seed_,
                             .layer = random_layer(),
                             .first = own.first + (by_position ? 0 : pass.batch.first_token),
                             .period = by_position ? pass.layout.seq_len() : 0,
                             .step = pass.batch.step,
                             .tokens = own.count,
                             .experts = mixture_.choices(),
                             .k = mixture_.k,
                             .gate = mixture_.gate_scale * all_gates / static_cast<double>(mixture_.k),
                             .type = accumulator_of(type),
                             .tally = tally};
  const auto [gates, index] = tape.apply(route);
  return {.gates = gates, .index = index.value, .load = {}};
}

std::vector<Loss> Router::losses(Tape& tape, const Pass& pass, const Variable& load, const ProcessGroup& data) const {
  if (!pass.training()) return {};
  std::vector<Loss> losses;
  if (has_losses(balance_)) {
    const BalanceLoss balance{.expert_factor = balance_.expert,
                              .device_factor = mixture_.placed() ? balance_.device : 0,
                              .z_factor = balance_.z_loss,
                              .information_factor = balance_.mutual_information,
                              .concentration_factor = balance_.concentration,
                              .devices = &groups_,
                              .top_k = mixture_.k,
                              .seq_len = pass.layout.seq_len(),
                              .choices = step_choices(pass),
                              .batch = is_over_batch(balance_) ? &data : nullptr,
                              .running = is_over_batch(balance_)
                                             ? pass.running_loads(balance_.scope, mixture_.id, RunningLoads::Of::router)
                                             : RunningLoads::Sums{}};
    const auto [expert, device, z, information, concentration] =
        tape.apply(balance, pass.layout.sum_over_ranks(tape, load));
    if (has_balance_losses(balance_)) losses = {{LossKind::expert_balance, expert}, {LossKind::device_balance, device}};
    if (balance_.z_loss > 0) losses.push_back({LossKind::z, z});
    if (balance_.mutual_information > 0) losses.push_back({LossKind::mutual_information, information});
    if (balance_.concentration > 0) losses.push_back({LossKind::concentration, concentration});
  }
  if (penalty_ > 0 && penalty_from_ < mixture_.choices()) {
    const RowPenalty penalty{.weight = choice_rows(),
                             .first = penalty_from_,
                             .factor = penalty_ * static_cast<double>(pass.layout.sequences()),
                             .graded = pass.layout.rank() == 0};
    losses.push_back({LossKind::router_penalty, tape.apply(penalty)});
  }
  return losses;
}

void require_skippable(const Config& config, std::int64_t skip) {
  const MoeConfig& moe = config.moe;
  require_usage(skip >= 0, "--skip-top = {}: must be 0 (none) or more", skip);
  if (skip == 0) return;
  std::vector<Mixture> mixtures = mixtures_of(config);
  std::erase_if(mixtures, [](const Mixture& mixture) { return !mixture.placed(); });
  require_usage(!mixtures.empty(), "--skip-top = {}: this model has no experts to choose from", skip);
  require_usage(has_scores(moe.router), "--skip-top = {} with moe.router = {}, which does not rank the experts", skip,
                name_of(moe.router));
  require_usage(!moe.even_routing, "--skip-top = {} with moe.even_routing = true, which does not rank the experts",
                skip);
  for (const Mixture& mixture : mixtures) {
    const std::int64_t experts = mixture.choices(), left = experts - mixture.k;
    const std::string of_layer = moe.experts_of_layers.empty() ? "" : " in layer " + label_of(mixture.id);
    require_usage(skip <= left, "--skip-top = {} and moe.top_k = {} are more than {} = {}{}: skip {} at most", skip,
                  mixture.k, choices_keys(moe), experts, of_layer, left);
    if (moe.group_limit == 0) continue;
    const std::int64_t open = choices_of_allowed_groups(config, experts);
    require_usage(
        skip <= open - mixture.k,
        "--skip-top = {} and moe.top_k = {} are more than the {} experts of moe.group_limit = {} groups: skip {} "
        "at most",
        skip, mixture.k, open, moe.group_limit, open - mixture.k);
  }
}

void Router::update(const Stream& stream, const Tensor& counts, std::span<const StepVerdict> verdict) const {
  if (!learns_from_counts()) return;
  dispatch_accumulator(bias_->value.dtype(), [&]<class A>() {
    launch(stream, BalanceBias<A>{.counts = counts.matrix<const std::int64_t>(),
                                  .bias = bias_->value.span<A>(),
                                  .rate = balance_.bias_rate,
                                  .verdict = verdict});
  });
}

}  // namespace lyceum
