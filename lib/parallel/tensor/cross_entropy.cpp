#include "parallel/tensor/cross_entropy.h"

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"

namespace lyceum {

Tensor VocabularyCrossEntropy::forward(const Stream& stream, Saved& saved, const Tensor& logits) const {
  const std::int64_t tokens = logits.shape()[0];
  const DType type = accumulator_of(logits.dtype());
  require(targets.size() == tokens && logits.shape()[1] == words.count, "{} targets and {} words for logits {}",
          targets.size(), words.count, logits.shape().text());
  saved = {.logits = logits, .log_sum_exp = Tensor::empty(stream, type, {tokens})};
  const Tensor own = Tensor::empty(stream, type, {tokens, 3});
  dispatch_float(logits.dtype(), [&]<class T>() {
    launch(stream, CrossEntropyPart<T>{.logits = logits.matrix<T>(),
                                       .targets = targets.span<const std::int32_t>(),
                                       .first = words.first,
                                       .vocab = vocab,
                                       .statistics = own.matrix<Accumulator<T>>()});
  });
  const Tensor all = Tensor::empty(stream, type, {group->size() * tokens, 3});
  group->all_gather(own, all, std::vector<std::int64_t>(static_cast<std::size_t>(group->size()), own.size()));

  const Tensor loss = Tensor::empty(stream, type, {tokens}), sum = Tensor::empty(stream, type, {1});
  dispatch_accumulator(type, [&]<class A>() {
    launch(stream,
           CrossEntropyJoin<A>{
               .statistics = all.matrix<A>(), .loss = loss.span<A>(), .log_sum_exp = saved.log_sum_exp.span<A>()});
    launch(stream, Total<A>{.x = loss.span<A>(), .y = sum.span<A>()});
  });
  return sum;
}

std::array<Tensor, 1> VocabularyCrossEntropy::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  dispatch_float(saved.logits.dtype(), [&]<class T>() {
    launch(stream, CrossEntropyBackward<T>{.logits = saved.logits.matrix<T>(),
                                           .targets = targets.span<const std::int32_t>(),
                                           .log_sum_exp = saved.log_sum_exp.span<Accumulator<T>>(),
                                           .scale = dy.span<Accumulator<T>>(),
                                           .d_logits = saved.logits.matrix<T>(),
                                           .first = words.first,
                                           .vocab = vocab});
  });
  return {std::move(saved.logits)};
}

}  // namespace lyceum
