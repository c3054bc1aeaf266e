#include "parallel/tensor/qk_norm.h"

namespace lyceum {

namespace {

/// Allocates [tokens, groups] for sums over the columns on this rank.
Tensor room_for_sums(const Stream& stream, const QkNorm& norm, const Tensor& x) {
  return Tensor::empty(stream, accumulator_of(x.dtype()), {x.shape()[0], norm.shape.groups()});
}

/// Adds up the sums over the ranks among which the columns of a group are divided.
void complete(const QkNorm& norm, const Tensor& sums) {
  if (!norm.shape.by_head) norm.group->all_reduce_async(sums).wait();
}

}  // namespace

Tensor QkNorm::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const Tensor squares = room_for_sums(stream, *this, x), y = Tensor::empty(stream, x.dtype(), x.shape());
  saved = {.x = x, .inverse_rms = room_for_sums(stream, *this, x)};
  dispatch_float(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, QkSquares<T>{.shape = shape, .x = x.matrix<T>(), .sums = squares.matrix<A>()});
    complete(*this, squares);
    launch(stream, QkNormForward<T>{.shape = shape,
                                    .x = x.matrix<T>(),
                                    .q_weight = q->value.span<T>(),
                                    .k_weight = k->value.span<T>(),
                                    .squares = squares.matrix<A>(),
                                    .y = y.matrix<T>(),
                                    .inverse_rms = saved.inverse_rms.matrix<A>(),
                                    .eps = eps});
  });
  return y;
}

std::array<Tensor, 1> QkNorm::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dots = room_for_sums(stream, *this, dy), dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, QkDots<T>{.shape = shape,
                             .x = saved.x.matrix<T>(),
                             .dy = dy.matrix<T>(),
                             .q_weight = q->value.span<T>(),
                             .k_weight = k->value.span<T>(),
                             .sums = dots.matrix<A>()});
    complete(*this, dots);
    launch(stream, QkNormBackward<T>{.shape = shape,
                                     .x = saved.x.matrix<T>(),
                                     .dy = dy.matrix<T>(),
                                     .q_weight = q->value.span<T>(),
                                     .k_weight = k->value.span<T>(),
                                     .inverse_rms = saved.inverse_rms.matrix<A>(),
                                     .dots = dots.matrix<A>(),
                                     .dx = dx.matrix<T>()});
  });
  return {dx};
}

void QkNorm::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for (const Parameter* weight : {q, k}) {
      if (!weight->trained()) continue;
      launch(stream, QkNormWeightGrad<T>{.shape = shape,
                                         .of_keys = weight == k,
                                         .x = saved.x.matrix<T>(),
                                         .dy = dy.matrix<T>(),
                                         .inverse_rms = saved.inverse_rms.matrix<A>(),
                                         .d_weight = weight->gradient.span<A>()});
    }
  });
}

}  // namespace lyceum
