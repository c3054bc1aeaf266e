#include "model/balance_loss.h"

#include "core/copy.h"
#include "kernels/balance.h"
#include "kernels/router.h"
#include "model/mixture.h"

namespace lyceum {

std::vector<std::string> loss_names(const Config& config) {
  std::vector<std::string> names;
  bool routes = false;
  for (std::int64_t layer = config.model.layers; layer-- > 0 && !routes;) routes = !mixtures_of(config, layer).empty();
  if (!routes) return names;
  if (balances(config.balance)) names = {"expert_balance", "device_balance"};
  if (config.balance.z_loss > 0) names.push_back("z");
  return names;
}

namespace {

/// The sum of all rows of all ranks, and behind it the number of those rows. [cols + 1]
Tensor sum_over_batch(const Stream& stream, const ProcessGroup& group, const Matrix<const double>& count) {
  std::vector<double> zeros(static_cast<std::size_t>(count.cols) + 1, 0.0);
  zeros.back() = static_cast<double>(count.rows);
  const Tensor sums = tensor_of(stream, {std::ssize(zeros)}, zeros);
  launch(stream, SumColumns{.x = count, .sums = sums.span<double>().first(zeros.size() - 1)});
  group.all_reduce_async(sums).wait();
  return sums;
}

}  // namespace

std::array<Tensor, 3> BalanceLoss::forward(const Stream& stream, Saved& saved, const Tensor& load) const {
  const std::int64_t sequences = load.shape()[0], experts = devices->experts();
  require(load.shape()[1] == load_width(experts), "a load {} of {} experts", load.shape(), experts);
  saved = {.expert_slope = Tensor::empty(stream, DType::f64, {sequences, experts}),
           .device_slope = Tensor::empty(stream, DType::f64, {sequences, experts})};
  const Tensor losses = Tensor::empty(stream, DType::f64, {3});
  const Tensor order = tensor_of(stream, {experts}, devices->order),
               first = tensor_of(stream, {std::ssize(devices->first)}, devices->first);
  const Matrix<const double> all = load.matrix<const double>();
  BalanceLosses balance{.count = all.cols_from(0, experts),
                        .count_of = {},
                        .sums = all.cols_from(experts, experts + 1),
                        .order = order.span<const std::int32_t>(),
                        .first = first.span<const std::int64_t>(),
                        .top_k = top_k,
                        .seq_len = seq_len,
                        .expert_factor = expert_factor,
                        .device_factor = device_factor,
                        .z_factor = z_factor,
                        .expert_slope = saved.expert_slope.matrix<double>(),
                        .device_slope = saved.device_slope.matrix<double>(),
                        .expert_loss = losses.span<double>().subspan(0, 1),
                        .device_loss = losses.span<double>().subspan(1, 1),
                        .z_loss = losses.span<double>().subspan(2, 1)};
  Tensor counts;
  if (batch) {
    counts = sum_over_batch(stream, *batch, balance.count);
    const auto numbers = counts.span<const double>();
    balance.count = {numbers.data(), sequences, experts, 0};  // the same row for every sequence
    balance.count_of = numbers.last(1);
  }
  launch(stream, balance);
  return {losses.slice(0, 1), losses.slice(1, 1), losses.slice(2, 1)};
}

std::array<Tensor, 1> BalanceLoss::backward(const Stream& stream, Saved& saved, const Tensor& d_expert,
                                            const Tensor& d_device, const Tensor& d_z) const {
  const Shape& shape = saved.expert_slope.shape();
  const Tensor d_load = Tensor::empty(stream, DType::f64, {shape[0], load_width(shape[1])});
  const auto by = [](const Tensor& d) { return d.defined() ? d.span<const double>() : std::span<const double>(); };
  launch(stream, BalanceLossesBackward{.expert_slope = saved.expert_slope.matrix<double>(),
                                       .device_slope = saved.device_slope.matrix<double>(),
                                       .z_slope = z_factor / static_cast<double>(seq_len),
                                       .by_expert = by(d_expert),
                                       .by_device = by(d_device),
                                       .by_z = by(d_z),
                                       .d_load = d_load.matrix<double>()});
  return {d_load};
}

}  // namespace lyceum
