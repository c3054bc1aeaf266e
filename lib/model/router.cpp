#include "model/router.h"

#include "autograd/linear.h"
#include "autograd/noise.h"
#include "autograd/relu.h"
#include "autograd/rms_norm.h"
#include "core/copy.h"
#include "kernels/router.h"
#include "model/balance_loss.h"

namespace lyceum {

std::vector<RouterTensor> router_tensors(const Config& config, const Mixture& mixture) {
  const std::int64_t hidden = config.model.hidden, width = config.moe.router_hidden, choices = mixture.choices();
  const double std = config.model.init_std;
  const RouterTensor scores{"gate/weight", {choices, hidden}, std, true};
  switch (mixture.router) {
    case RouterKind::sigmoid: return {scores, {"gate/e_score_correction_bias", {choices}, 0.0, false, false}};
    case RouterKind::random: return {{"gate/weight", {choices, hidden}, std, false, false}};
    case RouterKind::mlp:
      return {{"gate/in/weight", {width, hidden}, std, true, true, false},
              {"gate/weight", {choices, width}, std, true}};
    case RouterKind::noisy:
      return {scores, {"gate/noise/weight", {choices, hidden}, std, true}, {"gate/noise_scale", {choices}, {}, false}};
    case RouterKind::hash: return {};
    default: return {scores};
  }
}

Router::Router(const Config& config, const Mixture& mixture, const std::string& prefix, const Units& units,
               const Placement& groups)
    : moe_(config.moe),
      mixture_(mixture),
      losses_(has_losses(config.balance)),
      entropy_(informs(config.balance)),
      bias_rate_(config.balance.bias_rate),
      norm_eps_(config.model.norm_eps),
      seed_(config.run.seed),
      group_(groups.owner.begin(), groups.owner.end()),
      groups_(groups.ranks()) {
  for (const RouterTensor& tensor : router_tensors(config, mixture)) {
    ParameterUnit& unit = tensor.trained ? units.trained : units.untrained;
    parameters_.push_back(
        &unit.add(whole_parameter(prefix + "/" + tensor.name, tensor.shape, tensor.init_std, tensor.decay)));
  }
  if (mixture_.router == RouterKind::sigmoid) bias_ = parameters_.back();
}

Variable Router::logits(Tape& tape, const Pass& pass, const Variable& x) const {
  if (mixture_.router == RouterKind::mlp) {
    const Variable inner = tape.apply(Relu{}, tape.apply(Linear{parameters_[0]}, x));
    return tape.apply(PreciseLinear{parameters_[1]}, inner);
  }
  const Variable logits = tape.apply(PreciseLinear{parameters_[0]}, x);
  if (mixture_.router != RouterKind::noisy || !pass.training()) return logits;
  const Variable noise = tape.apply(PreciseLinear{parameters_[1]}, x);
  const NoisyLogits noisy{.seed = seed_,
                          .layer = mixture_.id.layer,
                          .first = pass.first_token + pass.layout.own().first,
                          .step = pass.step};
  return tape.apply(noisy, logits, tape.apply(RmsNorm{parameters_[2], norm_eps_}, noise));
}

Router::Choices Router::forward(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const {
  Choices choices = choose(tape, pass, x, tally);
  if (pass.chosen) pass.chosen->push_back({mixture_.id, choices.index, choices.gates.value});
  return choices;
}

Router::Choices Router::choose(Tape& tape, const Pass& pass, const Variable& x, const RoutingTally* tally) const {
  const RoutingTally counted = tally && !tape.replaying() ? *tally : RoutingTally{};
  if (mixture_.router == RouterKind::hash) {
    require(pass.tokens.defined(), "layer {} routes by tokens and was given none", mixture_.id.layer);
    const Range own = pass.layout.own();
    const auto [gates, index] = tape.apply(RouteByHash{.tokens = pass.tokens.slice(own.first, own.count),
                                                       .layer = mixture_.id.layer,
                                                       .experts = mixture_.choices(),
                                                       .type = accumulator_of(x.value.dtype()),
                                                       .tally = counted});
    return {.gates = gates, .index = index.value, .load = {}};
  }
  Route route{.k = mixture_.k,
              .scores = bias_ ? Scores::sigmoid : Scores::softmax,
              .rule = gates_of(moe_),
              .choices = pass.choices,
              .bias = bias_ ? bias_->value : Tensor(),
              .skip = pass.skip_top,
              .even = moe_.even_routing,
              .entropy = entropy_ && pass.training(),
              .tally = counted};
  if (moe_.group_limit > 0) {
    route.group = tensor_of(tape.stream(), {mixture_.choices()}, group_);
    route.groups = groups_;
    route.group_limit = moe_.group_limit;
  }
  if ((losses_ && pass.training()) || counted.counts.defined()) {
    route.sequences = pass.layout.sequences();
    route.seq_len = pass.layout.seq_len();
    route.first = pass.layout.own().first;
  }
  const auto [gates, index, load] = tape.apply(route, logits(tape, pass, x));
  return {.gates = gates, .index = index.value, .load = load};
}

void require_skippable(const Config& config, std::int64_t skip) {
  const MoeConfig& moe = config.moe;
  require_usage(skip >= 0, "--skip-top = {}: 0 (none) or more", skip);
  if (skip == 0) return;
  const std::vector<Mixture> mixtures = mixtures_of(config);
  require_usage(!mixtures.empty(), "--skip-top = {}: this model has no experts to choose from", skip);
  require_usage(moe.router != RouterKind::hash,
                "--skip-top = {} with moe.router = hash, which finds none of a token's experts better than others",
                skip);
  require_usage(!moe.even_routing, "--skip-top = {} with moe.even_routing = true, which looks for no best experts",
                skip);
  for (const Mixture& mixture : mixtures) {
    const std::int64_t experts = mixture.choices(), left = experts - mixture.k;
    const std::string of_layer = moe.experts_of_layers.empty() ? "" : " in layer " + label_of(mixture.id);
    require_usage(skip <= left, "--skip-top = {} and moe.top_k = {} are more than moe.experts = {}{}: skip {} at most",
                  skip, mixture.k, experts, of_layer, left);
    if (moe.group_limit == 0) continue;
    const std::int64_t open = experts / config.balance.device_groups * moe.group_limit;
    require_usage(
        skip <= open - mixture.k,
        "--skip-top = {} and moe.top_k = {} are more than the {} experts of moe.group_limit = {} groups: skip {} "
        "at most",
        skip, mixture.k, open, moe.group_limit, open - mixture.k);
  }
}

void Router::update(const Stream& stream, const Tensor& counts, std::span<const AdamWNumbers> numbers) const {
  if (!learns_from_counts()) return;
  dispatch_accumulator(bias_->value.dtype(), [&]<class A>() {
    launch(stream, BalanceBias<A>{.counts = counts.matrix<const std::int64_t>(),
                                  .bias = bias_->value.span<A>(),
                                  .rate = bias_rate_,
                                  .numbers = numbers});
  });
}

}  // namespace lyceum
