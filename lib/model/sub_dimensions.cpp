#include "model/sub_dimensions.h"

#include <iterator>

#include "autograd/activation.h"
#include "autograd/monarch.h"
#include "model/routing/balance_loss.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

namespace {

PieceScaling scaling_of(const SubDimensionsConfig& config) {
  return config.gates == PieceGates::ones ? PieceScaling::ones : config.scaling;
}

}  // namespace

SubDimensions::SubDimensions(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                             const Router::Units& units)
    : mixture_(mixture),
      mesh_(&mesh),
      together_(Placement::contiguous(mixture.choices(), 1)),
      scaling_(scaling_of(config.sub_dimensions)),
      balance_(config.balance.sub_dimension),
      over_batch_(config.balance.scope == BalanceScope::batch),
      router_(config, mixture, prefix, units, together_) {
  const std::int64_t b = fusion_width(config, mixture);
  if (b == 0) return;
  const Shape shape{config.model.hidden / b, b, b};
  const auto add = [&](const char* name) {
    return &units.trained.add(whole_parameter(prefix + name, shape, Initial::identity(b), true));
  };
  in_ = add("/fusion/in/weight");
  out_ = add("/fusion/out/weight");
}

SubDimensions::Use SubDimensions::use(Tape& tape, const Pass& pass, const Variable& x,
                                      const RoutingTally* tally) const {
  const TokenLayout& layout = pass.layout;
  const Router::Choices chosen = router_.forward(tape, pass, layout.to_run(tape, x), tally);
  const FactorsOfPieces factors{chosen.index, mixture_.always_on, scaling_};
  const Variable of_run = tape.apply(factors, chosen.logits);
  Use use{.choices = {}, .factors = layout.gather_runs(tape, of_run), .losses = {}};
  use.losses = router_.losses(tape, pass, chosen.load, mesh_->data);
  if (std::optional<Loss> own = balance(tape, pass, chosen)) use.losses.push_back(std::move(*own));
  const Tensor index = layout.gather_runs(tape.stream(), chosen.index);
  const auto rows = plan_rows(tape.stream(), mixture_.choices(), index);
  use.choices = std::make_shared<const PieceChoices>(tape.stream(), mixture_.choices(), mixture_.always_on, index,
                                                     rows->segments, rows->copies);
  return use;
}

/// β · N · Σ f_i P_i over the pieces that are not always on: f_i the share of tokens whose best one is i, P_i the mean
/// of its share of the probability of the pieces that are on, whatever they are multiplied by [MoHD eq. 13]. It has the
/// form of the expert-level loss of first choices.
std::optional<Loss> SubDimensions::balance(Tape& tape, const Pass& pass, const Router::Choices& chosen) const {
  if (!pass.training() || balance_ == 0) return {};
  const TokenLayout& layout = pass.layout;
  const Variable probabilities =
      tape.apply(FactorsOfPieces{chosen.index, mixture_.always_on, PieceScaling::none}, chosen.logits);
  const LoadOfPieces load{
      .index = chosen.index, .sequences = layout.sequences(), .seq_len = layout.seq_len(), .first = layout.own().first};
  const BalanceLoss loss{.expert_factor = balance_,
                         .devices = &together_,
                         .top_k = 1,
                         .seq_len = layout.seq_len(),
                         .batch = over_batch_ ? &mesh_->data : nullptr};
  return Loss{LossKind::sub_dimension, tape.apply(loss, layout.sum_of_runs(tape, tape.apply(load, probabilities)))[0]};
}

Variable SubDimensions::fused(Tape& tape, const TokenLayout& layout, const Variable& y) const {
  return in_ ? tape.apply(Monarch{in_, out_, layout.graded()}, y) : y;
}

SubDimensionAttention::SubDimensionAttention(const Config& config, const Mixture& mixture, const std::string& prefix,
                                             const Mesh& mesh, const Units& units)
    : SubDimensionHalf(config, mixture, prefix, mesh, units),
      heads_(heads_of(config.model, mesh.tensor)),
      matrices_(add_attention(units.dense, prefix, config.model, heads_, mesh.tensor)) {}

Sublayer::Result SubDimensionAttention::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  SubDimensions::Use own = use(tape, pass, x);
  const Variable all = layout.to_matrix(tape, x), qkv = tape.apply(ReadPieces{own.choices, matrices_.qkv}, all);
  layout.release_matrix(tape, all, x);
  const Attended attended = attend(tape, pass, heads_, qkv);
  const Variable out = tape.apply(WritePieces{own.choices, matrices_.out}, attended.y, own.factors);
  attended.release(tape);
  return {pieces().fused(tape, layout, layout.from_matrix(tape, out)), std::move(own.losses)};
}

SubDimensionFeedForward::SubDimensionFeedForward(const Config& config, const Mixture& mixture,
                                                 const std::string& prefix, const Mesh& mesh, const Units& units)
    : SubDimensionHalf(config, mixture, prefix, mesh, units), activation_(config.model.ffn) {
  const std::int64_t width = dense_width(config, mixture.id.layer);
  matrices_ = add_expert(units.dense, prefix, config.model,
                         {config.model.hidden, width, part_of(width, mesh.tensor.rank(), mesh.tensor.size())});
}

Sublayer::Result SubDimensionFeedForward::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  SubDimensions::Use own = use(tape, pass, x);
  const Variable all = layout.to_matrix(tape, x), inner = tape.apply(ReadPieces{own.choices, matrices_.in}, all);
  layout.release_matrix(tape, all, x);
  const Variable active = tape.apply(Activate{activation_}, inner);
  const Variable y = tape.apply(WritePieces{own.choices, matrices_.down}, active, own.factors);
  tape.release(active, Activate{activation_}, inner);
  return {pieces().fused(tape, layout, layout.from_matrix(tape, y)), std::move(own.losses)};
}

}  // namespace lyceum
