#include "autograd/sum_of_squares.h"

#include "autograd/cast.h"
#include "kernels/elementwise.h"
#include "kernels/measures.h"

namespace lyceum {

Tensor SumOfSquares::forward(const Stream& stream, Saved&) const {
  const Tensor rows = Tensor::empty(stream, DType::f64, {weight->shape[0]});
  const Tensor sum = Tensor::zeros(stream, DType::f64, {1});
  dispatch_float(weight->value.dtype(), [&]<class T>() {
    launch(stream,
           AddSquares<T>{.x = weight->value.matrix<const T>(), .rows = rows.span<double>(), .y = sum.span<double>()});
  });
  return cast(stream, sum, accumulator_of(weight->value.dtype()));
}

std::array<Tensor, 0> SumOfSquares::backward(const Stream& stream, Saved&, const Tensor& dy) const {
  if (!weight->trained()) return {};
  const Tensor times = cast(stream, dy, DType::f64);
  dispatch_float(weight->value.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, AddScaled<T, A>{.x = weight->value.span<T>(),
                                   .factor = 2,
                                   .y = weight->gradient.span<A>(),
                                   .times = times.span<const double>()});
  });
  return {};
}

}  // namespace lyceum
