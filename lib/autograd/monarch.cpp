#include "autograd/monarch.h"

#include "kernels/block_diagonal.h"

namespace lyceum {

namespace {

/// Returns blocks [n, b, b] as one matrix [n · b, b].
Tensor stacked(const Parameter& parameter, const Tensor& blocks) {
  return blocks.view(0, {parameter.shape[0] * parameter.shape[1], parameter.shape[2]});
}

Tensor product(const Stream& stream, const Parameter& blocks, BlockOrder order, bool transpose, const Tensor& x) {
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, BlockDiagonal<T>{.x = x.matrix<T>(),
                                    .weights = stacked(blocks, blocks.value).matrix<T>(),
                                    .order = order,
                                    .transpose = transpose,
                                    .y = y.matrix<T>()});
  });
  return y;
}

void add_gradient(const Stream& stream, const Parameter& blocks, BlockOrder order, const Tensor& dy, const Tensor& x) {
  if (!blocks.trained()) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, BlockDiagonalWeightGrad<T>{.dy = dy.matrix<T>(),
                                              .x = x.matrix<T>(),
                                              .order = order,
                                              .d_weights = stacked(blocks, blocks.gradient).matrix<Accumulator<T>>()});
  });
}

}  // namespace

Tensor Monarch::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  saved = {.x = x, .z = product(stream, *in, BlockOrder::neighbours, false, x), .dz = {}};
  return product(stream, *out, BlockOrder::strided, false, saved.z);
}

std::array<Tensor, 1> Monarch::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  saved.dz = product(stream, *out, BlockOrder::strided, true, dy);
  return {product(stream, *in, BlockOrder::neighbours, true, saved.dz)};
}

void Monarch::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const auto [first, count] = graded.value_or(Range{0, dy.shape()[0]});
  const auto rows = [&](const Tensor& whole) { return whole.slice(first, count); };
  add_gradient(stream, *out, BlockOrder::strided, rows(dy), rows(saved.z));
  add_gradient(stream, *in, BlockOrder::neighbours, rows(saved.dz), rows(saved.x));
}

}  // namespace lyceum
