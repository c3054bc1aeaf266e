#pragma once

#include "core/tensor.h"
#include "kernels/elementwise.h"

namespace lyceum {

/// Sets all elements of a tensor of any float type to 0.
inline void clear(const Stream& stream, const Tensor& x) {
  dispatch_float(x.dtype(), [&]<class T>() { launch(stream, Clear<T>{.y = x.span<T>()}); });
}

/// y = x, rounded to the type of y. Both are of any float type and have the same number of elements.
inline void convert(const Stream& stream, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), [&]<class From>() {
    dispatch_float(y.dtype(),
                   [&]<class To>() { launch(stream, Cast<From, To>{.x = x.span<From>(), .y = y.span<To>()}); });
  });
}

}  // namespace lyceum
