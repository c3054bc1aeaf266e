#include "autograd/cross_entropy.h"

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"

namespace lyceum {

Tensor CrossEntropy::forward(const Stream& stream, Saved& saved, const Tensor& logits) const {
  const std::int64_t tokens = logits.shape()[0];
  const DType type = accumulator_of(logits.dtype());
  require(targets.size() == tokens, "{} targets for {} tokens", targets.size(), tokens);
  saved = {.logits = logits, .log_sum_exp = Tensor::empty(stream, type, {tokens})};
  const Tensor loss = Tensor::empty(stream, type, {tokens});
  const Tensor sum = Tensor::empty(stream, type, {1});
  dispatch_float(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, CrossEntropyForward<T>{.logits = logits.matrix<T>(),
                                          .targets = targets.span<const std::int32_t>(),
                                          .loss = loss.span<A>(),
                                          .log_sum_exp = saved.log_sum_exp.span<A>()});
    launch(stream, Total<A>{.x = loss.span<A>(), .y = sum.span<A>()});
  });
  return sum;
}

std::array<Tensor, 1> CrossEntropy::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  dispatch_float(saved.logits.dtype(), [&]<class T>() {
    launch(stream, CrossEntropyBackward<T>{.logits = saved.logits.matrix<T>(),
                                           .targets = targets.span<const std::int32_t>(),
                                           .log_sum_exp = saved.log_sum_exp.span<Accumulator<T>>(),
                                           .scale = dy.span<Accumulator<T>>(),
                                           .d_logits = saved.logits.matrix<T>()});
  });
  return {std::move(saved.logits)};
}

}  // namespace lyceum
