#include "autograd/copies.h"
#include "autograd/linear.h"
#include "autograd/sum.h"
#include "model/layers.h"
#include "parallel/expert/capacity.h"
#include "parallel/expert/dispatch.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

ExpertBank::Expert add_expert(ParameterUnit& unit, const std::string& prefix, const ExpertShape& shape,
                              double init_std) {
  const auto& [hidden, width, part] = shape;
  return {
      .gate_up = &unit.add(stacked_parameter(
          prefix + "/gate_up", {{prefix + "/gate_proj/weight", width, part}, {prefix + "/up_proj/weight", width, part}},
          hidden, init_std)),
      .down = &unit.add(sharded_parameter(prefix + "/down_proj/weight", {hidden, width}, 1, part, init_std))};
}

FeedForward::FeedForward(const ModelConfig& config, const std::string& prefix, std::int64_t width,
                         const ProcessGroup& tensor, ParameterUnit& unit) {
  const ExpertShape shape{config.hidden, width, part_of(width, tensor.rank(), tensor.size())};
  expert_ = std::make_shared<std::vector<ExpertBank::Expert>>(1, add_expert(unit, prefix, shape, config.init_std));
}

Sublayer::Result FeedForward::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const auto rows = std::make_shared<SegmentTable>(SegmentTable::whole(tape.stream(), layout.tokens()));
  const Variable all = layout.to_matrix(tape, x), y = tape.apply(ExpertBank{expert_, rows}, all);
  layout.release_matrix(tape, all, x);
  return {layout.from_matrix(tape, y)};
}

MoeLayer::MoeLayer(const Config& config, const Mixture& mixture, const std::string& prefix, const Mesh& mesh,
                   const Units& units, ExpertPlaces places)
    : mixture_(mixture),
      balance_(config.balance),
      mesh_(&mesh),
      places_(std::move(places)),
      router_(config, mixture, prefix, {units.replicated, units.untrained}, places_.devices) {
  const std::int64_t hidden = config.model.hidden, latent = config.moe.latent_hidden;
  const double std = config.model.init_std;
  if (const std::int64_t width = dense_width(config, mixture.id.layer); width > 0) {
    shared_.emplace(config.model, prefix + "/shared_experts", width, mesh.tensor, units.dense);
  }
  if (latent > 0) {
    down_ = &units.replicated.add(whole_parameter(prefix + "/latent/down/weight", {latent, hidden}, std, true));
    up_ = &units.replicated.add(whole_parameter(prefix + "/latent/up/weight", {hidden, latent}, std, true));
  }
  auto bank = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (const std::int32_t e : places_.ranks.experts_of(mesh.expert.rank())) {
    const std::int64_t width = mixture.widths[static_cast<std::size_t>(e)];
    const Range part = part_of(width, mesh.expert_tensor.rank(), mesh.expert_tensor.size());
    bank->push_back(
        add_expert(units.experts, prefix + "/experts/" + std::to_string(e), {bank_hidden(config), width, part}, std));
  }
  experts_ = std::move(bank);
}

Sublayer::Result MoeLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable run = layout.to_run(tape, x);
  const auto [gates, index, load] = router_.forward(tape, pass, run, pass.counts ? &tally_ : nullptr);
  const Tensor taken = mixture_.capacity_factor > 0 && pass.limits ? kept(tape, pass, index) : index;
  Variable answers = routed(tape, down_ ? tape.apply(Linear{down_}, run) : run, gates, taken);
  if (up_) answers = tape.apply(Linear{up_}, answers);
  if (mixture_.copies > 0) {
    const CopyTokens copy{taken, mixture_.choices() - mixture_.copies};
    answers = tape.apply(Sum{}, answers, tape.apply(copy, run, gates));
  }
  Variable y = layout.from_run(tape, answers);
  if (shared_) y = tape.apply(Sum{}, y, shared_->forward(tape, pass, x).y);
  return {y, pass.training() && has_losses(balance_) ? losses(tape, pass, load) : std::vector<Loss>{}};
}

Tensor MoeLayer::kept(const Tape& tape, const Pass& pass, const Tensor& index) const {
  const Capacity capacity{.factor = mixture_.capacity_factor,
                          .experts = mixture_.choices(),
                          .choices = pass.choices,
                          .dropped = pass.counts && !tape.replaying() ? tally_.dropped : Tensor()};
  return within_capacity(tape.stream(), pass.layout, capacity, index);
}

Variable MoeLayer::routed(Tape& tape, const Variable& x, const Variable& gates, const Tensor& index) const {
  const auto exchange =
      plan_exchange(tape.stream(), mesh_->expert, places_.ranks, index, mixture_.zeros + mixture_.copies);
  const bool alone = mesh_->expert.size() == 1, whole = mesh_->expert_tensor.size() == 1;
  if (alone && whole) {  // the bank reads the tokens where they are
    const TokenRows copies{exchange->pair_of_sent, exchange->sent_of_pair, exchange->top_k};
    return tape.apply(Combine{exchange}, tape.apply(ExpertBank{experts_, exchange->segments, copies}, x), gates);
  }
  const Variable sent = tape.apply(Dispatch{exchange}, x);
  Variable answers;
  if (whole) {
    answers = tape.apply(ExpertBank{experts_, exchange->segments}, sent);
    tape.release(sent, Dispatch{exchange}, x);
  } else {
    const auto rows = plan_rows(tape.stream(), mesh_->expert_tensor, *exchange->segments);
    const Variable all = tape.apply(GatherExpertRows{rows}, sent);
    answers = tape.apply(ReduceExpertRows{rows}, tape.apply(ExpertBank{experts_, rows->segmented.segments}, all));
    tape.release(all, GatherExpertRows{rows}, sent);
    tape.release(sent, Dispatch{exchange}, x);
  }
  return tape.apply(Combine{exchange}, answers, gates);
}

std::vector<Loss> MoeLayer::losses(Tape& tape, const Pass& pass, const Variable& load) const {
  const BalanceLoss balance{.expert_factor = balance_.expert,
                            .device_factor = balance_.device,
                            .z_factor = balance_.z_loss,
                            .information_factor = balance_.mutual_information,
                            .concentration_factor = balance_.concentration,
                            .devices = &places_.devices,
                            .top_k = mixture_.k,
                            .seq_len = pass.layout.seq_len(),
                            .choices = pass.choices,
                            .batch = is_over_batch(balance_) ? &mesh_->data : nullptr};
  const auto [expert, device, z, information, concentration] = tape.apply(balance, pass.layout.sum_of_runs(tape, load));
  std::vector<Loss> losses;
  if (balances(balance_)) losses = {{"expert_balance", expert}, {"device_balance", device}};
  if (balance_.z_loss > 0) losses.push_back({"z", z});
  if (balance_.mutual_information > 0) losses.push_back({"mutual_information", information});
  if (balance_.concentration > 0) losses.push_back({"concentration", concentration});
  return losses;
}

}  // namespace lyceum
