#include "autograd/joined_norms.h"

#include "kernels/rms_norm.h"

namespace lyceum {

namespace {

/// Returns one half of the columns: the first (0) or the second (1).
template <class T>
Matrix<T> half(const Tensor& joined, int which) {
  const Matrix<T> all = joined.matrix<T>();
  return all.cols_from(which * (all.cols / 2), all.cols / 2);
}

void forward_half(const Stream& stream, const RmsNorm& norm, RmsNorm::Saved& saved, const Tensor& x, const Tensor& y,
                  int which) {
  saved = {.x = x, .inverse_rms = Tensor::empty(stream, accumulator_of(x.dtype()), {x.shape()[0]})};
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, RmsNormForward<T>{.x = x.matrix<T>(),
                                     .weight = norm.weight->value.span<T>(),
                                     .y = half<T>(y, which),
                                     .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                     .eps = norm.eps});
  });
}

Tensor backward_half(const Stream& stream, const RmsNorm& norm, const RmsNorm::Saved& saved, const Tensor& dy,
                     int which) {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), saved.x.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, RmsNormBackward<T>{.x = saved.x.matrix<T>(),
                                      .dy = half<T>(dy, which),
                                      .weight = norm.weight->value.span<T>(),
                                      .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                      .dx = dx.matrix<T>()});
  });
  return dx;
}

void weight_grad_half(const Stream& stream, const RmsNorm& norm, const RmsNorm::Saved& saved, const Tensor& dy,
                      int which) {
  if (!norm.weight->trained()) return;
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, RmsNormWeightGrad<T>{.x = saved.x.matrix<T>(),
                                        .dy = half<T>(dy, which),
                                        .inverse_rms = saved.inverse_rms.span<Accumulator<T>>(),
                                        .d_weight = norm.weight->gradient.span<Accumulator<T>>()});
  });
}

}  // namespace

Tensor JoinedNorms::forward(const Stream& stream, Saved& saved, const Tensor& x_a, const Tensor& x_b) const {
  require(x_a.shape() == x_b.shape() && !a.graded && !b.graded, "norms of {} and {} cannot be joined", x_a.shape(),
          x_b.shape());
  const Tensor y = Tensor::empty(stream, x_a.dtype(), {x_a.shape()[0], 2 * x_a.shape()[1]});
  forward_half(stream, a, saved.a, x_a, y, 0);
  forward_half(stream, b, saved.b, x_b, y, 1);
  return y;
}

std::array<Tensor, 2> JoinedNorms::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  return {backward_half(stream, a, saved.a, dy, 0), backward_half(stream, b, saved.b, dy, 1)};
}

void JoinedNorms::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  weight_grad_half(stream, a, saved.a, dy, 0);
  weight_grad_half(stream, b, saved.b, dy, 1);
}

}  // namespace lyceum
