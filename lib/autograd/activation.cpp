#include "autograd/activation.h"

#include "kernels/activation.h"
#include "kernels/elementwise.h"

namespace lyceum {

Tensor Activate::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const std::int64_t tokens = x.shape()[0], width = x.shape()[1] / inputs_of(function.kind);
  saved.x = x;
  saved.all = std::make_shared<SegmentTable>(SegmentTable::whole(stream, tokens));
  saved.in = SegmentLayout(stream, *saved.all, {x.shape()[1]});
  saved.out = SegmentLayout(stream, *saved.all, {width});
  const Tensor y = Tensor::empty(stream, x.dtype(), {tokens, width});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, ActivationForward<T>{.function = function,
                                        .segments = saved.all->view(),
                                        .x = saved.in.over(x.data<const T>()),
                                        .y = saved.out.over(y.data<T>())});
  });
  return y;
}

std::array<Tensor, 1> Activate::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), saved.x.shape());
  const Tensor again = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, ActivationBackward<T>{.function = function,
                                         .segments = saved.all->view(),
                                         .x = saved.in.over(saved.x.data<const T>()),
                                         .dy = saved.out.over(dy.data<const T>()),
                                         .dx = saved.in.over(dx.data<T>()),
                                         .y = saved.out.over(again.data<T>())});
  });
  return {dx};
}

Tensor Relu::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(),
                 [&]<class T>() { launch(stream, ReluForward<T>{.x = x.span<T>(), .y = saved.y.span<T>()}); });
  return saved.y;
}

std::array<Tensor, 1> Relu::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, ReluBackward<T>{.y = saved.y.span<T>(), .dy = dy.span<T>(), .dx = dx.span<T>()});
  });
  return {dx};
}

}  // namespace lyceum
