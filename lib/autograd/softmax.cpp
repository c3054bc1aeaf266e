#include "autograd/routing.h"
#include "kernels/router.h"

namespace lyceum {

Tensor Softmax::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_accumulator(x.dtype(), [&]<class A>() {
    launch(stream, SoftmaxForward<A>{.x = x.matrix<A>(), .y = saved.y.matrix<A>(), .log_sum_exp = {}});
  });
  return saved.y;
}

std::array<Tensor, 1> Softmax::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_accumulator(dy.dtype(), [&]<class A>() {
    launch(stream, SoftmaxBackward<A>{.y = saved.y.matrix<A>(), .dy = dy.matrix<A>(), .dx = dx.matrix<A>()});
  });
  return {dx};
}

}  // namespace lyceum
