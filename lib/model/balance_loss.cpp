#include "model/balance_loss.h"

#include <vector>

#include "kernels/router.h"
#include "kernels/selection.h"

namespace lyceum {

namespace {

/// Every row becomes the sum of all rows of all ranks, over the number of those rows: the batch's mean count.
template <class A>
void average_over_batch(const ProcessGroup& group, Matrix<A> count) {
  std::vector<double> sum(static_cast<std::size_t>(count.cols) + 1, 0.0);
  for (std::int64_t s = 0; s < count.rows; ++s) {
    for (std::int64_t i = 0; i < count.cols; ++i) sum[static_cast<std::size_t>(i)] += count.row(s)[i];
  }
  sum.back() = static_cast<double>(count.rows);
  group.all_reduce(std::span(sum));
  for (std::int64_t s = 0; s < count.rows; ++s) {
    for (std::int64_t i = 0; i < count.cols; ++i) {
      count.row(s)[i] = static_cast<A>(sum[static_cast<std::size_t>(i)] / sum.back());
    }
  }
}

/// One sequence: its two losses, and their derivatives by the score of expert i at any token.
template <class A>
std::pair<double, double> sequence_loss(const BalanceLoss& op, const A* count, const A* probability,
                                        std::int64_t experts, A* expert_slope, A* device_slope) {
  const auto top_k = static_cast<double>(op.index.shape()[1]), tokens = static_cast<double>(op.layout.seq_len());
  const double scale = static_cast<double>(experts) / (top_k * tokens);
  double expert_loss = 0, device_loss = 0;
  for (int device = 0; device < op.devices->ranks(); ++device) {
    const std::span<const std::int32_t> held = op.devices->experts_of(device);
    double mean_f = 0, sum_p = 0;
    for (const std::int32_t i : held) {
      const double f = scale * count[i], p = probability[i];
      expert_loss += f * p;
      expert_slope[i] = static_cast<A>(op.expert_factor * f / tokens);
      mean_f += f / static_cast<double>(held.size());
      sum_p += p;
    }
    device_loss += mean_f * sum_p;
    for (const std::int32_t i : held) device_slope[i] = static_cast<A>(op.device_factor * mean_f / tokens);
  }
  return {op.expert_factor * expert_loss, op.device_factor * device_loss};
}

}  // namespace

std::array<Tensor, 2> BalanceLoss::forward(const Stream& stream, Saved& saved, const Tensor& scores) const {
  const DType type = scores.dtype();
  const std::int64_t experts = scores.shape()[1], sequences = layout.sequences();
  require(scores.shape()[0] == layout.own().count, "scores {} for a run of {} tokens", scores.shape().text(),
          layout.own().count);
  const Shape shape{sequences, experts};
  const Tensor load = Tensor::empty(stream, type, {2 * sequences, experts});  // as one, so that one sum does
  const Tensor count = load.slice(0, sequences), probability = load.slice(sequences, sequences);
  saved = {.expert_slope = Tensor::empty(stream, type, shape),
           .device_slope = Tensor::empty(stream, type, shape),
           .shape = scores.shape()};
  const std::array<Tensor, 2> losses{Tensor::empty(stream, type, {1}), Tensor::empty(stream, type, {1})};
  dispatch_accumulator(type, [&]<class A>() {
    launch(stream, SequenceLoad<A>{.index = index.matrix<std::int32_t>(),
                                   .scores = scores.matrix<A>(),
                                   .seq_len = layout.seq_len(),
                                   .count = count.matrix<A>(),
                                   .mean_probability = probability.matrix<A>(),
                                   .first = layout.own().first});
    if (layout.sharers()) layout.sharers()->all_reduce_async(load).wait();
    if (batch) average_over_batch(*batch, count.matrix<A>());
    double expert_loss = 0, device_loss = 0;
    for (std::int64_t s = 0; s < sequences; ++s) {
      const auto [of_experts, of_devices] =
          sequence_loss(*this, count.matrix<A>().row(s), probability.matrix<A>().row(s), experts,
                        saved.expert_slope.matrix<A>().row(s), saved.device_slope.matrix<A>().row(s));
      expert_loss += of_experts;
      device_loss += of_devices;
    }
    *losses[0].data<A>() = static_cast<A>(expert_loss);
    *losses[1].data<A>() = static_cast<A>(device_loss);
  });
  return losses;
}

std::array<Tensor, 1> BalanceLoss::backward(const Stream& stream, Saved& saved, const Tensor& d_expert,
                                            const Tensor& d_device) const {
  const Tensor d_scores = Tensor::empty(stream, saved.expert_slope.dtype(), saved.shape);
  dispatch_accumulator(d_scores.dtype(), [&]<class A>() {
    const A by_expert = d_expert.defined() ? *d_expert.data<A>() : A{0};
    const A by_device = d_device.defined() ? *d_device.data<A>() : A{0};
    const std::span<A> slope = saved.expert_slope.span<A>(), device_slope = saved.device_slope.span<A>();
    for (std::size_t i = 0; i < slope.size(); ++i) slope[i] = by_expert * slope[i] + by_device * device_slope[i];
    launch(stream, SpreadOverSequence<A>{.slope = saved.expert_slope.matrix<A>(),
                                         .seq_len = layout.seq_len(),
                                         .d_scores = d_scores.matrix<A>(),
                                         .first = layout.own().first});
  });
  return {d_scores};
}

Tensor ZLoss::forward(const Stream& stream, Saved& saved, const Tensor& logits) const {
  saved = {.probabilities = Tensor::empty(stream, logits.dtype(), logits.shape()),
           .log_sum_exp = Tensor::empty(stream, logits.dtype(), {logits.shape()[0]})};
  const Tensor loss = Tensor::empty(stream, logits.dtype(), {1});
  dispatch_accumulator(logits.dtype(), [&]<class A>() {
    launch(stream, SoftmaxForward<A>{.x = logits.matrix<A>(),
                                     .y = saved.probabilities.matrix<A>(),
                                     .log_sum_exp = saved.log_sum_exp.span<A>()});
    std::array<double, 1> sum{0};
    for (const A z : saved.log_sum_exp.span<A>()) sum[0] += static_cast<double>(z) * z;
    if (layout.sharers()) layout.sharers()->all_reduce(std::span(sum));
    *loss.data<A>() = static_cast<A>(factor * sum[0] / static_cast<double>(layout.seq_len()));
  });
  return loss;
}

std::array<Tensor, 1> ZLoss::backward(const Stream&, Saved& saved, const Tensor& dy) const {
  dispatch_accumulator(dy.dtype(), [&]<class A>() {
    const double scale = 2 * factor * static_cast<double>(*dy.data<A>()) / static_cast<double>(layout.seq_len());
    const Matrix<A> d_logits = saved.probabilities.matrix<A>();
    for (std::int64_t t = 0; t < d_logits.rows; ++t) {
      const auto slope = static_cast<A>(scale * saved.log_sum_exp.span<A>()[static_cast<std::size_t>(t)]);
      for (std::int64_t i = 0; i < d_logits.cols; ++i) d_logits.row(t)[i] *= slope;
    }
  });
  return {std::move(saved.probabilities)};
}

}  // namespace lyceum
