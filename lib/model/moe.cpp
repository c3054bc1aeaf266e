#include <algorithm>
#include <numeric>

#include "autograd/linear.h"
#include "autograd/routing.h"
#include "autograd/sum.h"
#include "kernels/router.h"
#include "model/balance_loss.h"
#include "model/layers.h"
#include "parallel/expert/dispatch.h"

namespace lyceum {

std::vector<std::int64_t> expert_widths(const MoeConfig& moe) {
  if (!moe.expert_sizes.empty()) return moe.expert_sizes;
  return std::vector<std::int64_t>(static_cast<std::size_t>(moe.experts), moe.expert_hidden);
}

ExpertBank::Expert add_expert(ParameterUnit& unit, const std::string& prefix, std::int64_t hidden, std::int64_t width,
                              double init_std) {
  const auto up = {std::pair{prefix + "/gate_proj/weight", width}, {prefix + "/up_proj/weight", width}};
  return {.gate_up = &unit.add(stacked_parameter(prefix + "/gate_up", up, hidden, init_std)),
          .down = &unit.add(whole_parameter(prefix + "/down_proj/weight", {hidden, width}, init_std, true))};
}

FeedForward::FeedForward(const std::string& prefix, std::int64_t hidden, std::int64_t width, double init_std,
                         ParameterUnit& unit)
    : expert_(std::make_shared<std::vector<ExpertBank::Expert>>(1, add_expert(unit, prefix, hidden, width, init_std))) {
}

Variable FeedForward::forward(Tape& tape, const Variable& x) const {
  const std::int64_t tokens = x.value.shape()[0];
  return tape.apply(ExpertBank{expert_, std::make_shared<SegmentTable>(SegmentTable::whole(tokens))}, x);
}

MoeLayer::MoeLayer(const Config& config, const std::string& prefix, const Mesh& mesh, ParameterUnit& dense,
                   ParameterUnit& experts)
    : moe_(config.moe),
      balance_(config.balance),
      mesh_(&mesh),
      placement_(Placement::contiguous(config.moe.experts, mesh.expert.size())) {
  const std::int64_t hidden = config.model.hidden;
  const double std = config.model.init_std;
  router_ = &dense.add(whole_parameter(prefix + "/gate/weight", {moe_.experts, hidden}, std, true));
  if (moe_.shared_experts > 0) {
    shared_.emplace(prefix + "/shared_experts", hidden, moe_.shared_experts * moe_.expert_hidden, std, dense);
  }
  const std::vector<std::int64_t> widths = expert_widths(moe_);
  auto bank = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (const std::int32_t e : placement_.experts_of(mesh.expert.rank())) {
    bank->push_back(add_expert(experts, prefix + "/experts/" + std::to_string(e), hidden,
                               widths[static_cast<std::size_t>(e)], std));
  }
  experts_ = std::move(bank);
}

double imbalance(const RoutingSums& sums) {
  std::vector<std::int64_t> load(static_cast<std::size_t>(sums.experts), 0);
  for (std::size_t i = 0; i < sums.counts.size(); ++i) load[i % load.size()] += sums.counts[i];
  const std::int64_t total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  if (total == 0) return 0;
  return static_cast<double>(*std::max_element(load.begin(), load.end())) * static_cast<double>(sums.experts) /
         static_cast<double>(total);
}

namespace {

void add_sums(const Stream& stream, const Tensor& index, const Tensor& scores, RoutingSums& sums) {
  sums.top_k = index.shape()[1];
  sums.experts = scores.shape()[1];
  sums.counts.resize(static_cast<std::size_t>(sums.top_k * sums.experts));
  sums.probability.resize(static_cast<std::size_t>(sums.experts));
  launch(stream,
         CountChoices{.index = index.matrix<std::int32_t>(), .counts = {sums.counts.data(), sums.top_k, sums.experts}});
  dispatch_accumulator(scores.dtype(), [&]<class A>() {
    const Matrix<A> all = scores.matrix<A>();
    for (std::int64_t t = 0; t < all.rows; ++t) {
      for (std::int64_t i = 0; i < all.cols; ++i) sums.probability[static_cast<std::size_t>(i)] += all.row(t)[i];
    }
  });
}

}  // namespace

std::pair<Variable, MoeLayer::Losses> MoeLayer::forward(Tape& tape, const Variable& x, std::int64_t seq_len,
                                                        RoutingSums* sums) const {
  const Variable logits = tape.apply(PreciseLinear{router_}, x);
  const Variable scores = tape.apply(Softmax{}, logits);
  const auto [gates, index] = tape.apply(SelectTopK{.k = moe_.top_k, .renormalize = moe_.renormalize}, scores);
  if (sums && !tape.replaying()) add_sums(tape.stream(), index.value, scores.value, *sums);

  const auto exchange = plan_exchange(tape.stream(), mesh_->expert, placement_, index.value);
  const Variable rows = tape.apply(Dispatch{exchange}, x);
  const Variable answers = tape.apply(ExpertBank{experts_, exchange->segments}, rows);
  Variable y = tape.apply(Combine{exchange}, answers, gates);
  if (shared_) y = tape.apply(Sum{}, y, shared_->forward(tape, x));
  return {y, losses(tape, logits, scores, index.value, seq_len)};
}

MoeLayer::Losses MoeLayer::losses(Tape& tape, const Variable& logits, const Variable& scores, const Tensor& index,
                                  std::int64_t seq_len) const {
  Losses losses;
  if (balance_.expert > 0 || balance_.device > 0) {
    const BalanceLoss balance{.expert_factor = balance_.expert,
                              .device_factor = balance_.device,
                              .device_groups = balance_.device_groups,
                              .seq_len = seq_len,
                              .index = index,
                              .batch = balance_.scope == "batch" ? &mesh_->data : nullptr};
    const auto [expert, device] = tape.apply(balance, scores);
    losses.expert = expert;
    losses.device = device;
  }
  if (balance_.z_loss > 0) losses.z = tape.apply(ZLoss{.factor = balance_.z_loss, .seq_len = seq_len}, logits);
  return losses;
}

}  // namespace lyceum
