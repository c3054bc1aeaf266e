#include "autograd/row_gate.h"

#include "kernels/row_gate.h"

namespace lyceum {

Tensor RowGate::forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& logits) const {
  saved = {.x = x, .logits = logits};
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, RowGateForward<T>{.x = x.matrix<T>(), .logits = logits.span<Accumulator<T>>(), .y = y.matrix<T>()});
  });
  return y;
}

std::array<Tensor, 2> RowGate::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  const Tensor d_logits = Tensor::empty(stream, saved.logits.dtype(), saved.logits.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, RowGateBackward<T>{.x = saved.x.matrix<T>(),
                                      .dy = dy.matrix<T>(),
                                      .logits = saved.logits.span<Accumulator<T>>(),
                                      .dx = dx.matrix<T>(),
                                      .d_logits = d_logits.span<Accumulator<T>>()});
  });
  return {dx, d_logits};
}

}  // namespace lyceum
