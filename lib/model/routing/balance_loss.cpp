#include "model/routing/balance_loss.h"

#include "core/copy.h"
#include "kernels/balance.h"
#include "kernels/router.h"
#include "kernels/sum_columns.h"

namespace lyceum {

namespace {

/// Returns [cols + 1]: the sum of the rows of all ranks, followed by the number of these rows.
Tensor sum_over_batch(const Stream& stream, const ProcessGroup& group, const Matrix<const double>& load) {
  std::vector<double> zeros(static_cast<std::size_t>(load.cols) + 1, 0.0);
  zeros.back() = static_cast<double>(load.rows);
  const Tensor sums = tensor_of(stream, {std::ssize(zeros)}, zeros);
  launch(stream, SumColumns{.x = load, .sums = sums.span<double>().first(zeros.size() - 1)});
  group.all_reduce_async(sums).wait();
  return sums;
}

Matrix<double> matrix_or_none(const Tensor& tensor) {
  return tensor.defined() ? tensor.matrix<double>() : Matrix<double>{};
}

}  // namespace

std::array<Tensor, 5> BalanceLoss::forward(const Stream& stream, Saved& saved, const Tensor& load) const {
  const std::int64_t sequences = load.shape()[0], experts = devices->experts();
  require(load.shape()[1] == load_width(experts), "a table of loads {} does not match {} experts", load.shape(),
          experts);
  saved = {
      .expert_slope = Tensor::empty(stream, DType::f64, {sequences, experts}),
      .device_slope = Tensor::empty(stream, DType::f64, {sequences, experts}),
      .entropy_slope = has_information_losses() ? Tensor::empty(stream, DType::f64, {sequences, experts}) : Tensor()};
  const Tensor losses = Tensor::empty(stream, DType::f64, {5});
  const auto loss = [&](std::int64_t index) { return losses.slice(index, 1).span<double>(); };
  const Tensor order = tensor_of(stream, {experts}, devices->order),
               first = tensor_of(stream, {std::ssize(devices->first)}, devices->first);
  const Matrix<const double> all = load.matrix<const double>();
  BalanceLosses balance{
      .count = all.cols_from(0, experts),
      .probability = has_information_losses() ? all.cols_from(experts, experts) : Matrix<const double>{},
      .count_of = {},
      .sums = all.cols_from(experts, experts + 2),
      .order = order.span<const std::int32_t>(),
      .first = first.span<const std::int64_t>(),
      .top_k = top_k,
      .seq_len = seq_len,
      .choices = choices.defined() ? choices.span<const double>() : std::span<const double>(),
      .expert_factor = expert_factor,
      .device_factor = device_factor,
      .z_factor = z_factor,
      .information_factor = information_factor,
      .concentration_factor = concentration_factor,
      .expert_slope = saved.expert_slope.matrix<double>(),
      .device_slope = saved.device_slope.matrix<double>(),
      .entropy_slope = matrix_or_none(saved.entropy_slope),
      .expert_loss = loss(0),
      .device_loss = loss(1),
      .z_loss = loss(2),
      .information_loss = loss(3),
      .concentration_loss = loss(4)};
  Tensor sums;
  if (batch) {
    sums = sum_over_batch(stream, *batch, all.cols_from(0, has_information_losses() ? 2 * experts : experts));
    if (running.now.defined()) sums = running.add(stream, sums);
    const auto numbers = sums.span<const double>();
    balance.count = {numbers.data(), sequences, experts, 0};  // the same row for every sequence
    if (has_information_losses()) balance.probability = {numbers.data() + experts, sequences, experts, 0};
    balance.count_of = numbers.last(1);
  }
  launch(stream, balance);
  return {losses.slice(0, 1), losses.slice(1, 1), losses.slice(2, 1), losses.slice(3, 1), losses.slice(4, 1)};
}

std::array<Tensor, 1> BalanceLoss::backward(const Stream& stream, Saved& saved, const Tensor& d_expert,
                                            const Tensor& d_device, const Tensor& d_z, const Tensor& d_information,
                                            const Tensor& d_concentration) const {
  const Shape& shape = saved.expert_slope.shape();
  const Tensor d_load = Tensor::empty(stream, DType::f64, {shape[0], load_width(shape[1])});
  const auto by = [](const Tensor& d) { return d.defined() ? d.span<const double>() : std::span<const double>(); };
  launch(stream, BalanceLossesBackward{.expert_slope = saved.expert_slope.matrix<double>(),
                                       .device_slope = saved.device_slope.matrix<double>(),
                                       .entropy_slope = matrix_or_none(saved.entropy_slope),
                                       .z_slope = z_factor / static_cast<double>(seq_len),
                                       .information_slope = information_factor / static_cast<double>(seq_len),
                                       .information_factor = information_factor,
                                       .concentration_factor = concentration_factor,
                                       .by_expert = by(d_expert),
                                       .by_device = by(d_device),
                                       .by_z = by(d_z),
                                       .by_information = by(d_information),
                                       .by_concentration = by(d_concentration),
                                       .d_load = d_load.matrix<double>()});
  return {d_load};
}

}  // namespace lyceum
