#include "autograd/rms_norm.h"

#include "autograd/cast.h"
#include "kernels/rms_norm.h"

namespace lyceum {

Tensor RmsNorm::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape()), w = cast(stream, weight->value, x.dtype());
  saved = {.x = x, .inverse_rms = Tensor::empty(stream, accumulator_of(x.dtype()), {x.shape()[0]})};
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, RmsNormForward<T>{.x = x.matrix<T>(),
                                     .weight = w.span<T>(),
                                     .y = y.matrix<T>(),
                                     .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                     .eps = eps});
  });
  return y;
}

std::array<Tensor, 1> RmsNorm::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape()), w = cast(stream, weight->value, dy.dtype());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, RmsNormBackward<T>{.x = saved.x.matrix<T>(),
                                      .dy = dy.matrix<T>(),
                                      .weight = w.span<T>(),
                                      .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                      .dx = dx.matrix<T>()});
  });
  return {dx};
}

void RmsNorm::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const auto [first, count] = graded.value_or(Range{0, dy.shape()[0]});
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, RmsNormWeightGrad<T>{.x = saved.x.slice(first, count).matrix<T>(),
                                        .dy = dy.slice(first, count).matrix<T>(),
                                        .inverse_rms = saved.inverse_rms.slice(first, count).span<Accumulator<T>>(),
                                        .d_weight = weight->gradient.span<Accumulator<T>>()});
  });
}

std::array<Tensor, 2> SumNorm::forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& added) const {
  const Tensor sum = Tensor::empty(stream, x.dtype(), x.shape()), y = Tensor::empty(stream, x.dtype(), x.shape());
  saved = {.x = sum, .inverse_rms = Tensor::empty(stream, accumulator_of(x.dtype()), {x.shape()[0]})};
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, RmsNormForward<T>{.x = x.matrix<T>(),
                                     .weight = norm.weight->value.span<T>(),
                                     .y = y.matrix<T>(),
                                     .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                     .eps = norm.eps,
                                     .added = added.matrix<T>(),
                                     .sum = sum.matrix<T>()});
  });
  return {sum, y};
}

std::array<Tensor, 2> SumNorm::backward(const Stream& stream, Saved& saved, const Tensor& d_sum,
                                        const Tensor& dy) const {
  if (!dy.defined()) return {d_sum, d_sum};
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, RmsNormBackward<T>{.x = saved.x.matrix<T>(),
                                      .dy = dy.matrix<T>(),
                                      .weight = norm.weight->value.span<T>(),
                                      .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                      .dx = dx.matrix<T>(),
                                      .d_sum = d_sum.defined() ? d_sum.matrix<T>() : Matrix<const T>{}});
  });
  return {dx, dx};
}

void SumNorm::weight_grad(const Stream& stream, Saved& saved, const Tensor&, const Tensor& dy) const {
  if (dy.defined()) norm.weight_grad(stream, saved, dy);
}

}  // namespace lyceum
