#include "autograd/cast.h"

#include "kernels/tensor_kernels.h"

namespace lyceum {

Tensor cast(const Stream& stream, const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  const Tensor y = Tensor::empty(stream, type, x.shape());
  convert(stream, x, y);
  return y;
}

}  // namespace lyceum
