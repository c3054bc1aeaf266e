#include "autograd/row_penalty.h"

#include "autograd/cast.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace lyceum {

namespace {

/// y = x · factor
void scale(const Stream& stream, const Tensor& x, double factor, const Tensor& y) {
  dispatch_accumulator(
      x.dtype(), [&]<class A>() { launch(stream, Scale<A>{.x = x.span<A>(), .y = y.span<A>(), .factor = factor}); });
}

}  // namespace

Tensor RowPenalty::rows_of(const Tensor& whole) const {
  const Shape& shape = weight->shape;
  require(first >= 0 && first < shape[0], "the penalised rows begin at {}, but the matrix has {}", first, shape);
  return whole.view(first * shape[1], {1, (shape[0] - first) * shape[1]});
}

Tensor RowPenalty::forward(const Stream& stream, Saved&) const {
  const Tensor rows = cast(stream, rows_of(weight->value), accumulator_of(weight->value.dtype()));
  const Tensor sum = Tensor::empty(stream, rows.dtype(), {1, 1});
  dispatch_accumulator(rows.dtype(), [&]<class A>() {
    launch(stream, Gemm<A, A>{.a = rows.matrix<A>(), .b = rows.matrix<A>(), .c = sum.matrix<A>(), .transpose_b = true});
  });
  scale(stream, sum, factor, sum);
  return sum.view(0, {1});
}

std::array<Tensor, 0> RowPenalty::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  if (!graded || !weight->trained()) return {};
  const Tensor rows = cast(stream, rows_of(weight->value), dy.dtype());
  const Tensor slope = Tensor::empty(stream, dy.dtype(), {1, 1});
  scale(stream, dy, 2 * factor, slope);
  saved.gradient = Tensor::empty(stream, dy.dtype(), rows.shape());
  dispatch_accumulator(dy.dtype(), [&]<class A>() {
    launch(stream, Gemm<A, A>{.a = slope.matrix<A>(), .b = rows.matrix<A>(), .c = saved.gradient.matrix<A>()});
  });
  return {};
}

void RowPenalty::weight_grad(const Stream& stream, Saved& saved, const Tensor&) const {
  if (!graded) return;
  const Tensor sum = rows_of(weight->gradient);
  dispatch_accumulator(sum.dtype(), [&]<class A>() {
    launch(stream, Add<A>{.a = sum.span<A>(), .b = saved.gradient.span<A>(), .y = sum.span<A>()});
  });
}

}  // namespace lyceum
