#include "model/sub_dimensions.h"

#include <utility>

#include "autograd/activation.h"
#include "autograd/monarch.h"
#include "autograd/sub_dimension_factors.h"
#include "model/attention/attend.h"
#include "model/attention/logits.h"
#include "model/attention/multi_head.h"
#include "model/ffn/dense.h"
#include "model/routing/balance_loss.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

namespace {

SubDimensionScaling scaling_of(const SubDimensionsConfig& config) {
  return config.gates == SubDimensionGates::ones ? SubDimensionScaling::ones : config.scaling;
}

/// Returns the two factors of the fusion, block-diagonal matrices that begin as the identity; empty without a fusion.
std::vector<SublayerTensor> fusion_tensors(const Config& config, const Mixture& mixture) {
  const std::int64_t b = fusion_width(config, mixture);
  if (b == 0) return {};
  const Shape shape{config.model.hidden / b, b, b};
  return {{"fusion/in/weight", shape, Initial::identity(b), TensorPart::fusion},
          {"fusion/out/weight", shape, Initial::identity(b), TensorPart::fusion}};
}

/// Returns the tensors of a half in checkpoint order: router, fusion, then `matrices`, which are marked as chosen.
std::vector<SublayerTensor> with_router_and_fusion(const Config& config, const Mixture& mixture,
                                                   std::vector<SublayerTensor> matrices) {
  std::vector<SublayerTensor> tensors = router_tensors(config, mixture);
  for (SublayerTensor& tensor : fusion_tensors(config, mixture)) tensors.push_back(std::move(tensor));
  for (SublayerTensor& matrix : matrices) {
    matrix.chosen = true;
    tensors.push_back(std::move(matrix));
  }
  return tensors;
}

template <class Half>
std::unique_ptr<Sublayer> make_half(const Config& config, const SublayerSpec& spec, const SublayerContext& context) {
  return std::make_unique<Half>(config, *spec.mixture, spec.prefix(), context.mesh, context.units);
}

}  // namespace

SublayerSpec sub_dimension_attention_spec(const Config& config, const Mixture& mixture) {
  return {.id = mixture.id,
          .tensors = with_router_and_fusion(config, mixture, attention_matrices(config.model)),
          .costs = costs_of(heads_of(config.model, mixture.id.layer)),
          .mixture = mixture,
          .make = make_half<SubDimensionAttention>};
}

SublayerSpec sub_dimension_ffn_spec(const Config& config, const Mixture& mixture) {
  return {.id = mixture.id,
          .tensors = with_router_and_fusion(config, mixture,
                                            ffn_tensors(config.model, dense_ffn_shape(config, mixture.id.layer))),
          .mixture = mixture,
          .make = make_half<SubDimensionFeedForward>};
}

SubDimensions::SubDimensions(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                             const SublayerUnits& units)
    : mixture_(mixture),
      mesh_(&mesh),
      on_one_rank_(Placement::contiguous(mixture.choices(), 1)),
      scaling_(scaling_of(config.sub_dimensions)),
      input_gates_(config.sub_dimensions.input_gates && scaling_ != SubDimensionScaling::ones),
      balance_(config.balance.sub_dimension),
      scope_(config.balance.scope),
      router_(config, mixture, prefix, {units.replicated, units.untrained}, on_one_rank_) {
  const SublayerParameters parameters(fusion_tensors(config, mixture), prefix, mesh, units);
  in_ = parameters.find("fusion/in/weight");
  out_ = parameters.find("fusion/out/weight");
}

SubDimensions::Routing SubDimensions::route(Tape& tape, const Pass& pass, const Variable& x,
                                            const RoutingTally* tally) const {
  const TokenLayout& layout = pass.layout;
  const Router::Choices chosen = router_.forward(tape, pass, layout.to_own_tokens(tape, x), tally);
  const FactorsOfSubDimensions factors{chosen.index, mixture_.always_on, scaling_};
  const Variable of_run = tape.apply(factors, chosen.logits);
  Routing route{
      .choices = {}, .factors = layout.gather_own_tokens(tape, of_run), .losses = {}, .input_gates = input_gates_};
  if (mixture_.k == 0) {
    route.choices = std::make_shared<const SubDimensionChoices>(tape.stream(), mixture_.choices(), mixture_.always_on,
                                                                layout.tokens());
    return route;
  }
  route.losses = router_.losses(tape, pass, chosen.load, mesh_->data);
  if (std::optional<Loss> own = balance(tape, pass, chosen)) route.losses.push_back(std::move(*own));
  const Tensor index = layout.gather_own_tokens(tape.stream(), chosen.index);
  const auto rows = plan_rows(tape.stream(), mixture_.choices(), index);
  route.choices = std::make_shared<const SubDimensionChoices>(tape.stream(), mixture_.choices(), mixture_.always_on,
                                                              index, rows->segments, rows->copies);
  return route;
}

/// β · N · Σ f_i P_i over the N sub-dimensions that are not always active [MoHD eq. 13]. f_i is the share of tokens
/// whose first choice is i. P_i is the mean over tokens of the probability of i relative to all active sub-dimensions,
/// without the factors of sub_dimensions.scaling. This is the expert-level balance loss of first choices.
std::optional<Loss> SubDimensions::balance(Tape& tape, const Pass& pass, const Router::Choices& chosen) const {
  if (!pass.training() || balance_ == 0) return {};
  const TokenLayout& layout = pass.layout;
  const Variable probabilities =
      tape.apply(FactorsOfSubDimensions{chosen.index, mixture_.always_on, SubDimensionScaling::none}, chosen.logits);
  const LoadOfSubDimensions load{
      .index = chosen.index, .sequences = layout.sequences(), .seq_len = layout.seq_len(), .first = layout.own().first};
  const BalanceLoss loss{.expert_factor = balance_,
                         .devices = &on_one_rank_,
                         .top_k = 1,
                         .seq_len = layout.seq_len(),
                         .batch = scope_ != BalanceScope::sequence ? &mesh_->data : nullptr,
                         .running = pass.running_loads(scope_, mixture_.id, RunningLoads::Of::sub_dimension)};
  return Loss{LossKind::sub_dimension,
              tape.apply(loss, layout.sum_over_ranks(tape, tape.apply(load, probabilities)))[0]};
}

Variable SubDimensionHalf::read(Tape& tape, const TokenLayout& layout, const SubDimensions::Routing& routing,
                                Parameter* weight, const Variable& x) const {
  const Variable all = layout.to_matrix(tape, x);
  const ReadSubDimensions product{routing.choices, weight};
  Variable y;
  if (routing.input_gates) {
    const Variable scaled = tape.apply(ScaleSubDimensions{}, all, routing.factors);
    y = tape.apply(product, scaled);
    tape.release(scaled, ScaleSubDimensions{}, all, routing.factors);
  } else {
    y = tape.apply(product, all);
  }
  layout.release_matrix(tape, all, x);
  return y;
}

Variable SubDimensions::apply_fusion(Tape& tape, const TokenLayout& layout, const Variable& y) const {
  return in_ ? tape.apply(Monarch{in_, out_, layout.graded()}, y) : y;
}

SubDimensionAttention::SubDimensionAttention(const Config& config, const Mixture& mixture, const std::string& prefix,
                                             const Mesh& mesh, const SublayerUnits& units)
    : SubDimensionHalf(config, mixture, prefix, mesh, units),
      heads_(share_of(heads_of(config.model, mixture.id.layer), mesh.tensor)) {
  const SublayerParameters parameters(attention_matrices(config.model), prefix, mesh, units);
  qkv_ = &parameters.at("q_proj/weight");
  out_ = &parameters.at("o_proj/weight");
  scale_query_and_key_heads(*qkv_, mixture.id.layer, heads_);
}

Sublayer::Result SubDimensionAttention::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  SubDimensions::Routing own = route(tape, pass, x);
  const Variable qkv = read(tape, layout, own, qkv_, x);
  const std::int64_t layer = sub_dimensions().mixture().id.layer;
  const Attended attended =
      attend(tape, pass, heads_, qkv, {.largest_logits = logits_of_block(pass.batch.attention_logits, layer)});
  const Variable out = tape.apply(WriteSubDimensions{own.choices, out_}, attended.y, own.factors);
  attended.release(tape);
  return {sub_dimensions().apply_fusion(tape, layout, layout.from_matrix(tape, out)), std::move(own.losses)};
}

SubDimensionFeedForward::SubDimensionFeedForward(const Config& config, const Mixture& mixture,
                                                 const std::string& prefix, const Mesh& mesh,
                                                 const SublayerUnits& units)
    : SubDimensionHalf(config, mixture, prefix, mesh, units),
      activation_(activation_of(config.model)),
      matrices_(ffn_parameters(SublayerParameters(ffn_tensors(config.model, dense_ffn_shape(config, mixture.id.layer)),
                                                  prefix, mesh, units))) {}

Sublayer::Result SubDimensionFeedForward::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  SubDimensions::Routing own = route(tape, pass, x);
  const Variable inner = read(tape, layout, own, matrices_.in, x);
  const Variable active = tape.apply(Activate{activation_}, inner);
  const Variable y = tape.apply(WriteSubDimensions{own.choices, matrices_.down}, active, own.factors);
  tape.release(active, Activate{activation_}, inner);
  return {sub_dimensions().apply_fusion(tape, layout, layout.from_matrix(tape, y)), std::move(own.losses)};
}

}  // namespace lyceum
