#include "model/ffn/experts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "autograd/copies.h"
#include "autograd/linear.h"
#include "autograd/row_gate.h"
#include "autograd/sum.h"
#include "kernels/capacity.h"
#include "parallel/expert/capacity.h"

namespace lyceum {

namespace {

constexpr const char* shared_prefix = "shared_experts/";

FfnShape expert_shape(const Config& config, std::int64_t width) {
  return {.hidden = bank_hidden(config), .width = width, .part = TensorPart::routed};
}

/// Returns the tensors of routed experts. Adjacent experts of equal width are declared together.
std::vector<SublayerTensor> bank_tensors(const Config& config, const Mixture& mixture) {
  std::vector<SublayerTensor> tensors;
  for (std::int64_t first = 0, end = 0; first < mixture.weighted(); first = end) {
    const auto width = [&](std::int64_t e) { return mixture.widths[static_cast<std::size_t>(e)]; };
    while (end < mixture.weighted() && width(end) == width(first)) ++end;
    for (SublayerTensor& tensor : ffn_tensors(config.model, expert_shape(config, width(first)))) {
      tensor.chosen = tensor.placed = true;
      tensor.choices = {first, end - first};
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

/// Returns the tensors of the half without those of the router, in checkpoint order.
std::vector<SublayerTensor> tensors_of_experts(const Config& config, const Mixture& mixture) {
  const ModelConfig& model = config.model;
  const std::int64_t hidden = model.hidden, latent = config.moe.latent_hidden;
  std::vector<SublayerTensor> tensors;
  if (const std::int64_t width = dense_width(config, mixture.id.layer); width > 0) {
    tensors = ffn_tensors(model, {hidden, width, TensorPart::shared, shared_prefix});
  }
  if (config.moe.shared_gate) tensors.push_back(shared_gate_tensor(model));
  if (latent > 0) {
    tensors.push_back({"latent/down/weight", {latent, hidden}, model.init_std, TensorPart::latent});
    tensors.push_back({"latent/up/weight", {hidden, latent}, model.init_std, TensorPart::latent});
  }
  std::ranges::move(bank_tensors(config, mixture), std::back_inserter(tensors));
  return tensors;
}

}  // namespace

SublayerSpec ffn_experts_spec(const Config& config, const Mixture& mixture) {
  std::vector<SublayerTensor> tensors = router_tensors(config, mixture);
  for (SublayerTensor& tensor : tensors_of_experts(config, mixture)) tensors.push_back(std::move(tensor));
  return {.id = mixture.id,
          .tensors = std::move(tensors),
          .mixture = mixture,
          .make = [](const Config& of, const SublayerSpec& spec,
                     const SublayerContext& context) -> std::unique_ptr<Sublayer> {
            return std::make_unique<MoeLayer>(
                of, *spec.mixture, spec.prefix(), context,
                expert_placements(of, *spec.mixture, context.mesh.expert.size(), context.measured));
          }};
}

SublayerTensor shared_gate_tensor(const ModelConfig& model) {
  return {"shared_expert_gate/weight", {1, model.hidden}, model.init_std, TensorPart::routers};
}

std::int64_t expert_column(const Config& config) {
  std::int64_t parameters = 0;
  for (const SublayerTensor& tensor : ffn_tensors(config.model, expert_shape(config, 1))) {
    if (tensor.name != down_bias) parameters += tensor.elements();
  }
  return parameters;
}

MoeLayer::MoeLayer(const Config& config, const Mixture& mixture, const std::string& prefix,
                   const SublayerContext& context, ExpertPlacements placements)
    : mixture_(mixture),
      prefix_(prefix),
      mesh_(&context.mesh),
      unit_(context.units.experts),
      bank_(bank_tensors(config, mixture)),
      placements_(std::move(placements)),
      route_(present_route()),
      router_(config, mixture, prefix, {context.units.replicated, context.units.untrained}, placements_.devices),
      overlaps_(config.parallel.overlap != Overlap::none),
      bounded_(config.parallel.expert_exchange == ExpertExchange::bounded),
      activation_(activation_of(config.model)) {
  const std::span<const std::int32_t> own = placements_.ranks.experts_of(mesh_->expert.rank());
  const SublayerParameters parameters(tensors_of_experts(config, mixture), prefix, *mesh_, context.units, own);
  down_ = parameters.find("latent/down/weight");
  up_ = parameters.find("latent/up/weight");
  shared_gate_ = parameters.find("shared_expert_gate/weight");
  if (dense_width(config, mixture.id.layer) > 0) {
    shared_.emplace(activation_, ffn_parameters(parameters, shared_prefix));
  }
  auto bank = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (const std::int32_t e : own) bank->push_back(ffn_parameters(parameters, expert_tensor_name(e, "")));
  experts_ = std::move(bank);
  if (config.parallel.replicas > 0 && context.train && !route_.hops.empty()) make_replicas(config, context);
}

void MoeLayer::make_replicas(const Config& config, const SublayerContext& context) {
  const std::vector<std::int64_t> elements = slot_elements();
  const std::span<const std::int64_t> widths = std::span(mixture_.widths).first(elements.size());
  const auto make = [&](std::int64_t width, ParameterUnit& slot) {
    const auto expert = static_cast<std::int32_t>(std::ranges::find(widths, width) - widths.begin());
    const SublayerParameters parameters(bank_, prefix_, *mesh_, {slot, slot, slot, &slot}, std::span(&expert, 1));
    return ffn_parameters(parameters, expert_tensor_name(expert, ""));
  };
  const SpareSlots::Experts experts{
      .widths = widths, .elements = elements, .originals = unit_, .own = *experts_, .make = make};
  replicas_ = std::make_unique<ExpertReplicas>(config, mixture_, *mesh_, context.stream, context.type, experts,
                                               placements_.ranks, route_);
}

ExpertRoute MoeLayer::present_route() const {
  return route_of(placements_.ranks, mesh_->expert_hops(),
                  {mixture_.k, mixture_.choices(), mixture_.group_limit, &placements_.devices});
}

std::vector<std::int64_t> MoeLayer::slot_elements() const {
  std::map<std::int64_t, std::int64_t> of_width;
  std::vector<std::int64_t> elements;
  for (std::int32_t expert = 0; expert < mixture_.weighted(); ++expert) {
    const auto [found, added] = of_width.try_emplace(mixture_.widths[static_cast<std::size_t>(expert)]);
    if (added) {
      ParameterUnit slot("slot", ParameterUnit::Group::expert);
      const SublayerParameters parameters(bank_, prefix_, *mesh_, {slot, slot, slot, &slot}, std::span(&expert, 1));
      found->second = slot.size();
    }
    elements.push_back(found->second);
  }
  return elements;
}

void MoeLayer::set_placement(const Placement& placement) {
  const std::span<const std::int32_t> before = placements_.ranks.experts_of(mesh_->expert.rank()),
                                      now = placement.experts_of(mesh_->expert.rank());
  require(before.size() == now.size(), "a rank with {} experts of {} cannot hold {}", before.size(), prefix_,
          now.size());
  std::map<std::string, std::string> names;  // prefix of the tensors of an expert, before and now
  for (std::size_t slot = 0; slot < now.size(); ++slot) {
    names[prefix_ + "/" + expert_tensor_name(before[slot], "")] = prefix_ + "/" + expert_tensor_name(now[slot], "");
  }
  const auto rename = [&](std::string& name) {
    const std::size_t length = name.find('/', prefix_.size() + std::string_view("/experts/").size()) + 1;
    name.replace(0, length, names.at(name.substr(0, length)));
  };
  for (const auto& parameter : unit_->parameters()) {
    rename(parameter->name);
    for (ParameterSlice& slice : parameter->slices) rename(slice.name);
  }
  placements_.ranks = placement;
  route_ = present_route();
  if (replicas_) replicas_->placement_changed(route_);
}

Sublayer::Result MoeLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  // The gradients of replicas return beside the backward pass of this half.
  if (replicas_ && pass.batch.replicas) tape.finish_weight_grads_here();
  const Variable run = layout.to_own_tokens(tape, x);
  const auto [gates, index, load, logits] = router_.forward(tape, pass, run, pass.counts ? &tally_ : nullptr);
  const Tensor taken = mixture_.capacity_factor > 0 && pass.limits ? drop_over_capacity(tape, pass, index) : index;
  const Variable tokens = down_ ? tape.apply(Linear{down_}, run) : run;
  ExpertReplicas::Routing routing{.index = taken, .plan = nullptr, .route = &route_};
  if (replicas_ && pass.batch.replicas) routing = replicas_->prepare(tape, pass, taken);
  std::optional<Variable> of_shared;
  const TokensAndChoices here{.x = tokens, .gates = gates, .index = routing.index, .bounds = row_bounds(pass)};
  Variable answers = run_routed(tape, here, routing, 0, [&] {
    if (shared_) of_shared = run_shared_experts(tape, pass, x, run);
  });
  if (up_) answers = tape.apply(Linear{up_}, answers);
  if (mixture_.copies > 0) {
    const CopyTokens copy{taken, mixture_.choices() - mixture_.copies};
    answers = tape.apply(Sum{}, answers, tape.apply(copy, run, gates));
  }
  Variable y = layout.from_own_tokens(tape, answers);
  if (of_shared) y = tape.apply(Sum{}, y, *of_shared);
  return {y, router_.losses(tape, pass, load, mesh_->data)};
}

Variable MoeLayer::run_shared_experts(Tape& tape, const Pass& pass, const Variable& x, const Variable& run) const {
  const Variable y = shared_->forward(tape, pass, x).y;
  if (!shared_gate_) return y;
  return tape.apply(RowGate{}, y, pass.layout.from_own_tokens(tape, tape.apply(PreciseLinear{shared_gate_}, run)));
}

std::optional<RowBounds> MoeLayer::row_bounds(const Pass& pass) const {
  if (!bounded_ || !pass.training() || route_.hops.empty()) return {};
  const auto [tokens, sequences] = pass.layout.largest_share();
  if (mixture_.capacity_factor <= 0) return RowBounds{.tokens = tokens, .choices = tokens};
  const std::int64_t capacity =
      capacity_of(mixture_.capacity_factor, static_cast<double>(mixture_.k), pass.layout.seq_len(), mixture_.choices());
  return RowBounds{.tokens = tokens, .choices = std::min(tokens, sequences * capacity)};
}

Tensor MoeLayer::drop_over_capacity(const Tape& tape, const Pass& pass, const Tensor& index) const {
  const Capacity capacity{.factor = mixture_.capacity_factor,
                          .experts = mixture_.choices(),
                          .choices = pass.batch.choices,
                          .dropped = pass.counts && !tape.replaying() ? tally_.dropped : Tensor()};
  return within_capacity(tape.stream(), pass.layout, capacity, index);
}

Variable MoeLayer::run_routed(Tape& tape, const TokensAndChoices& tokens, const ExpertReplicas::Routing& routing,
                              std::size_t hop, const std::function<void()>& meanwhile) const {
  if (hop == routing.route->hops.size()) {
    const Variable answers = mesh_->expert_tensor.size() > 1 ? run_sharded_experts(tape, tokens, routing)
                                                             : run_local_experts(tape, tokens, routing);
    meanwhile();
    return answers;
  }
  const Hop& next = routing.route->hops[hop];
  const auto exchange = tokens.bounds ? bounded_exchange(tape.stream(), next, tokens.index, *tokens.bounds, overlaps_)
                                      : plan_exchange(tape.stream(), next, tokens.index, overlaps_);
  const TokensAndChoices here = dispatched(tape, exchange, tokens, meanwhile);
  const Variable answers = run_routed(tape, here, routing, hop + 1, [] {});
  tape.release(here.x, SendTokensAgain{exchange}, tokens.x);
  return tape.apply(SumAnswers{exchange, !tape.replaying()}, answers);
}

Variable MoeLayer::run_sharded_experts(Tape& tape, const TokensAndChoices& tokens,
                                       const ExpertReplicas::Routing& routing) const {
  const auto [shards, all] = gathered(tape, mesh_->expert_tensor, tokens);
  const Variable answers = run_local_experts(tape, all, routing);
  tape.release(all.x, AllGatherReduceScatter{{shards}}, tokens.x);
  return tape.apply(ReduceScatterAllGather{{shards}}, answers);
}

Variable MoeLayer::run_local_experts(Tape& tape, const TokensAndChoices& tokens,
                                     const ExpertReplicas::Routing& routing) const {
  const auto rows = rows_of_experts(tape.stream(), *routing.route, tokens, routing.rows);
  if (routing.plan) return replicas_->run(tape, activation_, routing, *rows, tokens.x, tokens.gates);
  return tape.apply(GatedBank{{activation_, experts_, rows->segments}, rows->copies}, tokens.x, tokens.gates);
}

}  // namespace lyceum
