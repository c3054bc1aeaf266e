#include "model/balance_loss.h"

#include <vector>

#include "core/copy.h"
#include "kernels/balance.h"
#include "kernels/elementwise.h"
#include "kernels/norms.h"
#include "kernels/router.h"
#include "kernels/selection.h"

namespace lyceum {

namespace {

/// Every row becomes the sum of all rows of all ranks, over the number of those rows: the batch's mean count.
template <class A>
void average_over_batch(const Stream& stream, const ProcessGroup& group, Matrix<A> count) {
  std::vector<double> zeros(static_cast<std::size_t>(count.cols) + 1, 0.0);
  zeros.back() = static_cast<double>(count.rows);
  const Tensor sums = tensor_of(stream, {std::ssize(zeros)}, zeros);
  launch(stream, SumColumns<A>{.x = count, .sums = sums.span<double>().first(zeros.size() - 1)});
  group.all_reduce_async(sums).wait();
  launch(stream, SpreadMean<A>{.sums = sums.span<double>(), .y = count});
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
    if (batch) average_over_batch(stream, *batch, count.matrix<A>());
    const Tensor order = tensor_of(stream, {devices->experts()}, devices->order),
                 first = tensor_of(stream, {std::ssize(devices->first)}, devices->first);
    launch(stream, BalanceLosses<A>{.count = count.matrix<A>(),
                                    .probability = probability.matrix<A>(),
                                    .order = order.span<const std::int32_t>(),
                                    .first = first.span<const std::int64_t>(),
                                    .top_k = index.shape()[1],
                                    .seq_len = layout.seq_len(),
                                    .expert_factor = expert_factor,
                                    .device_factor = device_factor,
                                    .expert_slope = saved.expert_slope.matrix<A>(),
                                    .device_slope = saved.device_slope.matrix<A>(),
                                    .expert_loss = losses[0].span<A>(),
                                    .device_loss = losses[1].span<A>()});
  });
  return losses;
}

std::array<Tensor, 1> BalanceLoss::backward(const Stream& stream, Saved& saved, const Tensor& d_expert,
                                            const Tensor& d_device) const {
  const Tensor d_scores = Tensor::empty(stream, saved.expert_slope.dtype(), saved.shape);
  dispatch_accumulator(d_scores.dtype(), [&]<class A>() {
    const auto factor = [](const Tensor& d) { return d.defined() ? d.span<const A>() : std::span<const A>(); };
    launch(stream, MixSlopes<A>{.a = saved.expert_slope.span<A>(),
                                .b = saved.device_slope.span<A>(),
                                .by_a = factor(d_expert),
                                .by_b = factor(d_device),
                                .y = saved.expert_slope.span<A>()});
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
  const Tensor loss = Tensor::zeros(stream, logits.dtype(), {1});
  dispatch_accumulator(logits.dtype(), [&]<class A>() {
    launch(stream, SoftmaxForward<A>{.x = logits.matrix<A>(),
                                     .y = saved.probabilities.matrix<A>(),
                                     .log_sum_exp = saved.log_sum_exp.span<A>()});
    const Tensor sum = Tensor::zeros(stream, DType::f64, {1});
    if (const std::int64_t tokens = logits.shape()[0]) {
      launch(stream, SumOfSquares<A>{.x = saved.log_sum_exp.span<A>(), .block = tokens, .sums = sum.span<double>()});
    }
    if (layout.sharers()) layout.sharers()->all_reduce_async(sum).wait();
    launch(stream,
           AddScaled<double, A>{
               .x = sum.span<double>(), .factor = factor / static_cast<double>(layout.seq_len()), .y = loss.span<A>()});
  });
  return loss;
}

std::array<Tensor, 1> ZLoss::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  dispatch_accumulator(dy.dtype(), [&]<class A>() {
    launch(stream, ScaleRows<A>{.x = saved.probabilities.matrix<A>(),
                                .row = saved.log_sum_exp.span<A>(),
                                .factor = dy.span<A>(),
                                .scale = 2 * factor / static_cast<double>(layout.seq_len())});
  });
  return {std::move(saved.probabilities)};
}

}  // namespace lyceum
