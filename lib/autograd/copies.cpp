#include "autograd/copies.h"

#include "kernels/copies.h"

namespace lyceum {

Tensor CopyTokens::forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const {
  saved = {.x = x, .gates = gates};
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, CopyRows<T>{.x = x.matrix<T>(),
                               .index = index.matrix<const std::int32_t>(),
                               .gate = gates.matrix<Accumulator<T>>(),
                               .first = first,
                               .y = y.matrix<T>()});
  });
  return y;
}

std::array<Tensor, 2> CopyTokens::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor d_gates = Tensor::empty(stream, saved.gates.dtype(), saved.gates.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, CopyRowsBackward<T>{.x = saved.x.matrix<T>(),
                                       .dy = dy.matrix<T>(),
                                       .index = index.matrix<const std::int32_t>(),
                                       .first = first,
                                       .d_gate = d_gates.matrix<Accumulator<T>>()});
  });
  Saved unused;
  return {forward(stream, unused, dy, saved.gates), d_gates};
}

}  // namespace lyceum
