#include "autograd/linear.h"

#include "autograd/cast.h"
#include "kernels/gemm.h"

namespace lyceum {

namespace {

Tensor multiply_transposed(const Stream& stream, const Tensor& x, const Tensor& weight) {  // x · Wᵀ
  require(x.shape()[1] == weight.shape()[1], "a linear layer {} on {}", weight.shape().text(), x.shape().text());
  const Tensor y = Tensor::empty(stream, x.dtype(), {x.shape()[0], weight.shape()[0]});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, Gemm<T>{.a = x.matrix<T>(), .b = weight.matrix<T>(), .c = y.matrix<T>(), .transpose_b = true});
  });
  return y;
}

Tensor multiply(const Stream& stream, const Tensor& dy, const Tensor& weight) {  // dy · W
  const Tensor dx = Tensor::empty(stream, dy.dtype(), {dy.shape()[0], weight.shape()[1]});
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, Gemm<T>{.a = dy.matrix<T>(), .b = weight.matrix<T>(), .c = dx.matrix<T>()});
  });
  return dx;
}

void add_weight_grad(const Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gradient) {  // += dyᵀ · x
  dispatch_float(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, Gemm<T, A>{.a = dy.matrix<T>(),
                              .b = x.matrix<T>(),
                              .c = gradient.matrix<A>(),
                              .transpose_a = true,
                              .accumulate = true});
  });
}

}  // namespace

Tensor Linear::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.x = x;
  return multiply_transposed(stream, x, weight->value);
}

std::array<Tensor, 1> Linear::backward(const Stream& stream, Saved&, const Tensor& dy) const {
  return {multiply(stream, dy, weight->value)};
}

void Linear::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  add_weight_grad(stream, dy, saved.x, weight->gradient);
}

Tensor PreciseLinear::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.x = x;
  const DType type = accumulator_of(x.dtype());
  return multiply_transposed(stream, cast(stream, x, type), cast(stream, weight->value, type));
}

std::array<Tensor, 1> PreciseLinear::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  return {cast(stream, multiply(stream, dy, cast(stream, weight->value, dy.dtype())), saved.x.dtype())};
}

void PreciseLinear::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  add_weight_grad(stream, dy, cast(stream, saved.x, dy.dtype()), weight->gradient);
}

}  // namespace lyceum
