#include "autograd/dropout.h"

#include "kernels/bias.h"

namespace lyceum {

DropoutMask DropoutSource::mask() const {
  return {.seed = seed,
          .site = site,
          .first = first,
          .step = step.span<const double>(),
          .block = block,
          .seq_len = seq_len};
}

Tensor Dropout::forward(const Stream& stream, Saved&, const Tensor& x) const {
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, ApplyDropout<T>{.x = x.matrix<T>(), .y = y.matrix<T>(), .mask = source.mask(), .rate = rate});
  });
  return y;
}

std::array<Tensor, 1> Dropout::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  return {forward(stream, saved, dy)};
}

Tensor ConcreteDropout::apply(const Stream& stream, const Tensor& x) const {
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, ApplyConcreteDropout<T>{
                       .x = x.matrix<T>(), .logit = logit->value.span<T>(), .y = y.matrix<T>(), .mask = source.mask()});
  });
  return y;
}

Tensor ConcreteDropout::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.x = x;
  return apply(stream, x);
}

std::array<Tensor, 1> ConcreteDropout::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  if (logit->trained()) add_logit_gradient(stream, saved, dy);
  return {apply(stream, dy)};
}

void ConcreteDropout::add_logit_gradient(const Stream& stream, const Saved& saved, const Tensor& dy) const {
  const auto [first, count] = graded.value_or(Range{0, dy.shape()[0]});
  DropoutSource graded_source = source;
  graded_source.first += first;
  const Tensor sums = Tensor::empty(stream, accumulator_of(dy.dtype()), {count, 1});
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, ConcreteDropoutGrad<T>{.x = saved.x.slice(first, count).matrix<T>(),
                                          .dy = dy.slice(first, count).matrix<T>(),
                                          .logit = logit->value.span<T>(),
                                          .d_logit = sums.span<A>(),
                                          .mask = graded_source.mask()});
    launch(stream, BiasGrad<A>{.dy = sums.matrix<A>(), .d_bias = logit->gradient.span<A>()});
  });
}

Tensor RegulariseDropout::forward(const Stream& stream, Saved& saved, const Tensor& squares) const {
  saved.squares = squares;
  const Tensor loss = Tensor::empty(stream, squares.dtype(), {1});
  dispatch_float(logit->value.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, ConcreteRegulariser<T>{.logit = logit->value.span<T>(),
                                          .squares = squares.span<A>(),
                                          .loss = loss.span<A>(),
                                          .norm_factor = norm_factor,
                                          .entropy_factor = entropy_factor});
  });
  return loss;
}

std::array<Tensor, 1> RegulariseDropout::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor d_squares = Tensor::empty(stream, dy.dtype(), saved.squares.shape());
  const bool adds = graded && logit->trained();
  dispatch_float(logit->value.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, ConcreteRegulariserBackward<T>{.logit = logit->value.span<T>(),
                                                  .squares = saved.squares.span<A>(),
                                                  .d_loss = dy.span<A>(),
                                                  .d_squares = d_squares.span<A>(),
                                                  .d_logit = adds ? logit->gradient.span<A>() : std::span<A>(),
                                                  .norm_factor = norm_factor,
                                                  .entropy_factor = entropy_factor});
  });
  return {d_squares};
}

}  // namespace lyceum
