#include "autograd/relu.h"

#include "kernels/elementwise.h"

namespace lyceum {

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
