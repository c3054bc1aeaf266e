#include "autograd/linear.h"

#include "autograd/cast.h"
#include "core/copy.h"
#include "core/round_up.h"
#include "kernels/bias.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace lyceum {

void multiply_transposed(const Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, Gemm<T>{.a = x.matrix<T>(), .b = weight.matrix<T>(), .c = y.matrix<T>(), .transpose_b = true});
  });
}

void multiply(const Stream& stream, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, Gemm<T>{.a = dy.matrix<T>(), .b = weight.matrix<T>(), .c = dx.matrix<T>()});
  });
}

void add_weight_grad(const Stream& stream, const Tensor& dy, const Tensor& x, Parameter& weight) {
  dispatch_float(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, Gemm<T, A>{.a = dy.matrix<T>(),
                              .b = x.matrix<T>(),
                              .c = weight.gradient.matrix<A>(),
                              .transpose_a = true,
                              .accumulate = weight.contribute()});
  });
}

namespace {

Tensor result_of(const Stream& stream, const Tensor& x, const Tensor& weight) {
  require(x.shape()[1] == weight.shape()[1], "a weight {} cannot multiply an input {}", weight.shape(), x.shape());
  const Tensor y = Tensor::empty(stream, x.dtype(), {x.shape()[0], weight.shape()[0]});
  multiply_transposed(stream, x, weight, y);
  return y;
}

Tensor gradient_of(const Stream& stream, const Tensor& dy, const Tensor& weight) {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), {dy.shape()[0], weight.shape()[1]});
  multiply(stream, dy, weight, dx);
  return dx;
}

/// Returns columns `columns` of y; y itself if their count is 0.
template <class T>
Matrix<T> columns_of(const Matrix<T>& y, const Range& columns) {
  return columns.count > 0 ? y.cols_from(columns.first, columns.count) : y;
}

void add_bias(const Stream& stream, const Tensor& bias, const Range& columns, const Tensor& y) {
  dispatch_float(y.dtype(), [&]<class T>() {
    launch(stream, AddBias<T>{.bias = bias.span<T>(), .y = columns_of(y.matrix<T>(), columns)});
  });
}

void add_bias_grad(const Stream& stream, const Tensor& dy, const Range& columns, const Tensor& gradient) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, BiasGrad<T>{.dy = columns_of(Matrix<const T>(dy.matrix<T>()), columns),
                               .d_bias = gradient.span<Accumulator<T>>()});
  });
}

std::vector<Parameter*> with_bias(Parameter* weight, Parameter* bias) {
  return bias ? std::vector{weight, bias} : std::vector{weight};
}

}  // namespace

Tensor Linear::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.x = x;
  const Tensor y = result_of(stream, x, weight->value);
  if (bias && bias->shape.size() > 0) add_bias(stream, bias->value, bias_columns, y);
  return y;
}

std::vector<Parameter*> Linear::parameters() const { return with_bias(weight, bias); }

std::array<Tensor, 1> Linear::backward(const Stream& stream, Saved&, const Tensor& dy) const {
  return {gradient_of(stream, dy, weight->value)};
}

void Linear::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  if (weight->trained()) add_weight_grad(stream, dy, saved.x, *weight);
  if (bias && bias->trained() && bias->shape.size() > 0) add_bias_grad(stream, dy, bias_columns, bias->gradient);
}

Tensor PreciseLinear::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved.x = x;
  const Tensor w = cast(stream, weight->value, x.dtype());
  Tensor y;
  if (x.dtype() != DType::bf16) {
    y = result_of(stream, x, w);
  } else {
    y = Tensor::empty(stream, DType::f32, {x.shape()[0], weight->shape[0]});
    launch(stream,
           Gemm<bfloat16, float>{
               .a = x.matrix<bfloat16>(), .b = w.matrix<bfloat16>(), .c = y.matrix<float>(), .transpose_b = true});
  }
  if (bias) add_bias(stream, cast(stream, bias->value, y.dtype()), {}, y);
  return y;
}

std::vector<Parameter*> PreciseLinear::parameters() const { return with_bias(weight, bias); }

namespace {

/// Returns the columns of each half of split(). Rounded up so that rows of both halves begin at multiples of 16 bytes,
/// as tensor cores need, for any number of choices.
std::int64_t half_width(std::int64_t cols) { return round_up<std::int64_t>(cols, 8); }

/// Splits each element of dy into the sum of two bf16 numbers, high and low (SplitFloat). Bf16 products of both halves
/// are precise enough for gradients.
Tensor split(const Stream& stream, const Tensor& dy) {
  const Tensor parts = Tensor::empty(stream, DType::bf16, {dy.shape()[0], 2 * half_width(dy.shape()[1])});
  launch(stream, SplitFloat{.x = dy.matrix<float>(), .parts = parts.matrix<bfloat16>()});
  return parts;
}

}  // namespace

std::array<Tensor, 1> PreciseLinear::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor w = cast(stream, weight->value, saved.x.dtype());
  if (saved.x.dtype() != DType::bf16) return {gradient_of(stream, dy, w)};
  const std::int64_t rows = w.shape()[0], width = half_width(rows);
  const Tensor twice = Tensor::zeros(stream, DType::bf16, {2 * width, w.shape()[1]});
  for (const std::int64_t half : {0, 1}) {
    copy_on_device(stream, twice.slice(half * width, rows).raw(), w.raw(), w.bytes());
  }
  return {gradient_of(stream, split(stream, dy), twice)};  // high · W + low · W
}

void PreciseLinear::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  if (bias && bias->trained()) add_bias_grad(stream, dy, {}, bias->gradient);
  if (!weight->trained()) return;
  if (saved.x.dtype() != DType::bf16) return add_weight_grad(stream, dy, saved.x, *weight);
  launch(stream, SplitWeightGrad{.parts = split(stream, dy).matrix<bfloat16>(),
                                 .x = saved.x.matrix<bfloat16>(),
                                 .dw = weight->gradient.matrix<float>(),
                                 .accumulate = weight->contribute()});
}

}  // namespace lyceum
