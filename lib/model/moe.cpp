#include <algorithm>
#include <numeric>

#include "autograd/sum.h"
#include "model/balance_loss.h"
#include "model/layers.h"
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

Variable FeedForward::forward(Tape& tape, const TokenLayout& layout, const Variable& x) const {
  const auto rows = std::make_shared<SegmentTable>(SegmentTable::whole(tape.stream(), layout.tokens()));
  const Variable all = layout.to_matrix(tape, x), y = tape.apply(ExpertBank{expert_, rows}, all);
  layout.release_matrix(tape, all, x);
  return layout.from_matrix(tape, y);
}

MoeLayer::MoeLayer(const Config& config, const std::string& prefix, std::int64_t layer, const Mesh& mesh,
                   const Units& units, ExpertPlaces places)
    : moe_(config.moe),
      balance_(config.balance),
      mesh_(&mesh),
      places_(std::move(places)),
      router_(config, prefix, layer, {units.replicated, units.untrained}, places_.devices) {
  const std::int64_t hidden = config.model.hidden;
  const double std = config.model.init_std;
  if (moe_.shared_experts > 0) {
    shared_.emplace(config.model, prefix + "/shared_experts", moe_.shared_experts * moe_.expert_hidden, mesh.tensor,
                    units.dense);
  }
  const std::vector<std::int64_t> widths = expert_widths(moe_);
  auto bank = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (const std::int32_t e : places_.ranks.experts_of(mesh.expert.rank())) {
    const std::int64_t width = widths[static_cast<std::size_t>(e)];
    const Range part = part_of(width, mesh.expert_tensor.rank(), mesh.expert_tensor.size());
    bank->push_back(add_expert(units.experts, prefix + "/experts/" + std::to_string(e), {hidden, width, part}, std));
  }
  experts_ = std::move(bank);
}

RoutingSums no_routing(const Config& config, std::int64_t layer) {
  const std::int64_t top_k = config.moe.top_k, experts = config.moe.experts;
  return {.layer = layer,
          .top_k = top_k,
          .experts = experts,
          .counts = std::vector<std::int64_t>(static_cast<std::size_t>(top_k * experts), 0),
          .probability = std::vector<double>(static_cast<std::size_t>(experts), 0.0)};
}

double imbalance(const RoutingSums& sums) {
  std::vector<std::int64_t> load(static_cast<std::size_t>(sums.experts), 0);
  for (std::size_t i = 0; i < sums.counts.size(); ++i) load[i % load.size()] += sums.counts[i];
  const std::int64_t total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  if (total == 0) return 0;
  return static_cast<double>(*std::max_element(load.begin(), load.end())) * static_cast<double>(sums.experts) /
         static_cast<double>(total);
}

std::pair<Variable, MoeLayer::Losses> MoeLayer::forward(Tape& tape, const Pass& pass, const Variable& x,
                                                        const RoutingTally* tally) const {
  const TokenLayout& layout = pass.layout;
  const Variable run = layout.to_run(tape, x);
  const auto [gates, index, load] = router_.forward(tape, pass, run, tally);
  Variable y = layout.from_run(tape, routed(tape, run, gates, index));
  if (shared_) y = tape.apply(Sum{}, y, shared_->forward(tape, layout, x));
  return {y, has_losses(balance_) ? losses(tape, layout, load) : Losses{}};
}

Variable MoeLayer::routed(Tape& tape, const Variable& x, const Variable& gates, const Tensor& index) const {
  const auto exchange = plan_exchange(tape.stream(), mesh_->expert, places_.ranks, index);
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

MoeLayer::Losses MoeLayer::losses(Tape& tape, const TokenLayout& layout, const Variable& load) const {
  const BalanceLoss balance{.expert_factor = balance_.expert,
                            .device_factor = balance_.device,
                            .z_factor = balance_.z_loss,
                            .devices = &places_.devices,
                            .top_k = moe_.top_k,
                            .seq_len = layout.seq_len(),
                            .batch = balances(balance_) && balance_.scope == "batch" ? &mesh_->data : nullptr};
  const auto [expert, device, z] = tape.apply(balance, layout.sum_of_runs(tape, load));
  Losses losses;
  if (balances(balance_)) {
    losses.expert = expert;
    losses.device = device;
  }
  if (balance_.z_loss > 0) losses.z = z;
  return losses;
}

}  // namespace lyceum
