#include "autograd/copies.h"
#include "autograd/linear.h"
#include "autograd/row_gate.h"
#include "autograd/sum.h"
#include "core/round_up.h"
#include "model/layers.h"
#include "parallel/expert/capacity.h"

namespace lyceum {

ExpertBank::Expert add_expert(ParameterUnit& unit, const std::string& prefix, const ModelConfig& model,
                              const ExpertShape& shape) {
  const auto& [hidden, width, part] = shape;
  // Rows of a multiple of 16 bytes, also of bf16: what tensor cores and their copies need.
  constexpr std::int64_t aligned = 8;
  const std::int64_t room = round_up(part.count, aligned);
  std::vector<RowsOf> in{{prefix + "/up_proj/weight", width, part, room}};
  std::string name = in.front().name;
  if (model.ffn == Activation::swiglu) {
    in.insert(in.begin(), {prefix + "/gate_proj/weight", width, part, room});
    name = prefix + "/gate_up";
  }
  return {.in = &unit.add(stacked_parameter(std::move(name), in, hidden, model.init_std)),
          .down = &unit.add(
              sharded_parameter(prefix + "/down_proj/weight", {hidden, width}, 1, part, model.init_std, room))};
}

FeedForward::FeedForward(const ModelConfig& config, const std::string& prefix, std::int64_t width,
                         const ProcessGroup& tensor, ParameterUnit& unit)
    : activation_(config.ffn) {
  const ExpertShape shape{config.hidden, width, part_of(width, tensor.rank(), tensor.size())};
  expert_ = std::make_shared<std::vector<ExpertBank::Expert>>(1, add_expert(unit, prefix, config, shape));
}

Sublayer::Result FeedForward::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const auto rows = std::make_shared<SegmentTable>(SegmentTable::whole(tape.stream(), layout.tokens()));
  const Variable all = layout.to_matrix(tape, x), y = tape.apply(ExpertBank{activation_, expert_, rows}, all);
  layout.release_matrix(tape, all, x);
  return {layout.from_matrix(tape, y)};
}

MoeLayer::MoeLayer(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const Units& units, ExpertPlaces places)
    : mixture_(mixture),
      mesh_(&mesh),
      places_(std::move(places)),
      route_(route_of(places_.ranks, mesh.expert_hops(),
                      {mixture.k, mixture.choices(), mixture.group_limit, &places_.devices})),
      router_(config, mixture, prefix, {units.replicated, units.untrained}, places_.devices),
      overlaps_(config.parallel.overlap != Overlap::none),
      activation_(config.model.ffn) {
  const std::int64_t hidden = config.model.hidden, latent = config.moe.latent_hidden;
  const double std = config.model.init_std;
  if (const std::int64_t width = dense_width(config, mixture.id.layer); width > 0) {
    shared_.emplace(config.model, prefix + "/shared_experts", width, mesh.tensor, units.dense);
  }
  if (config.moe.shared_gate) {
    shared_gate_ =
        &units.replicated.add(whole_parameter(prefix + "/shared_expert_gate/weight", {1, hidden}, std, true));
  }
  if (latent > 0) {
    down_ = &units.replicated.add(whole_parameter(prefix + "/latent/down/weight", {latent, hidden}, std, true));
    up_ = &units.replicated.add(whole_parameter(prefix + "/latent/up/weight", {hidden, latent}, std, true));
  }
  auto bank = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (const std::int32_t e : places_.ranks.experts_of(mesh.expert.rank())) {
    const std::int64_t width = mixture.widths[static_cast<std::size_t>(e)];
    const Range part = part_of(width, mesh.expert_tensor.rank(), mesh.expert_tensor.size());
    bank->push_back(add_expert(units.experts, prefix + "/experts/" + std::to_string(e), config.model,
                               {bank_hidden(config), width, part}));
  }
  experts_ = std::move(bank);
}

Sublayer::Result MoeLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable run = layout.to_run(tape, x);
  const auto [gates, index, load, logits] = router_.forward(tape, pass, run, pass.counts ? &tally_ : nullptr);
  const Tensor taken = mixture_.capacity_factor > 0 && pass.limits ? kept(tape, pass, index) : index;
  const Variable tokens = down_ ? tape.apply(Linear{down_}, run) : run;
  std::optional<Variable> of_shared;
  Variable answers = routed(tape, {.x = tokens, .gates = gates, .index = taken}, route_.hops, [&] {
    if (shared_) of_shared = shared(tape, pass, x, run);
  });
  if (up_) answers = tape.apply(Linear{up_}, answers);
  if (mixture_.copies > 0) {
    const CopyTokens copy{taken, mixture_.choices() - mixture_.copies};
    answers = tape.apply(Sum{}, answers, tape.apply(copy, run, gates));
  }
  Variable y = layout.from_run(tape, answers);
  if (of_shared) y = tape.apply(Sum{}, y, *of_shared);
  return {y, router_.losses(tape, pass, load, mesh_->data)};
}

Variable MoeLayer::shared(Tape& tape, const Pass& pass, const Variable& x, const Variable& run) const {
  const Variable y = shared_->forward(tape, pass, x).y;
  if (!shared_gate_) return y;
  return tape.apply(RowGate{}, y, pass.layout.from_run(tape, tape.apply(PreciseLinear{shared_gate_}, run)));
}

Tensor MoeLayer::kept(const Tape& tape, const Pass& pass, const Tensor& index) const {
  const Capacity capacity{.factor = mixture_.capacity_factor,
                          .experts = mixture_.choices(),
                          .choices = pass.batch.choices,
                          .dropped = pass.counts && !tape.replaying() ? tally_.dropped : Tensor()};
  return within_capacity(tape.stream(), pass.layout, capacity, index);
}

Variable MoeLayer::routed(Tape& tape, const TokensAndChoices& tokens, std::span<const Hop> hops,
                          const std::function<void()>& meanwhile) const {
  if (hops.empty()) {
    const Variable answers = mesh_->expert_tensor.size() > 1 ? shared_out(tape, tokens) : computed(tape, tokens);
    meanwhile();
    return answers;
  }
  const auto exchange = plan_exchange(tape.stream(), hops.front(), tokens.index, overlaps_);
  const TokensAndChoices here = dispatched(tape, exchange, tokens, meanwhile);
  const Variable answers = routed(tape, here, hops.subspan(1), [] {});
  tape.release(here.x, SendTokensAgain{exchange}, tokens.x);
  return tape.apply(SumAnswers{exchange, !tape.replaying()}, answers);
}

Variable MoeLayer::shared_out(Tape& tape, const TokensAndChoices& tokens) const {
  const auto [shards, all] = gathered(tape, mesh_->expert_tensor, tokens);
  const Variable answers = computed(tape, all);
  tape.release(all.x, AllGatherReduceScatter{{shards}}, tokens.x);
  return tape.apply(ReduceScatterAllGather{{shards}}, answers);
}

Variable MoeLayer::computed(Tape& tape, const TokensAndChoices& tokens) const {
  const auto rows = rows_of_experts(tape.stream(), route_, tokens);
  return tape.apply(GatedBank{{activation_, experts_, rows->segments}, rows->copies}, tokens.x, tokens.gates);
}

}  // namespace lyceum
