#include "autograd/cast.h"

#include "kernels/elementwise.h"

namespace lyceum {

Tensor cast(const Stream& stream, const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  const Tensor y = Tensor::empty(stream, type, x.shape());
  dispatch_float(x.dtype(), [&]<class From>() {
    dispatch_float(type, [&]<class To>() { launch(stream, Cast<From, To>{.x = x.span<From>(), .y = y.span<To>()}); });
  });
  return y;
}

}  // namespace lyceum
