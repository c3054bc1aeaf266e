#include "autograd/sub_dimension_factors.h"

#include "kernels/router.h"
#include "kernels/sub_dimensions.h"

namespace lyceum {

namespace {

/// Returns the description of products of all sub-dimensions of x, [tokens, sub-dimensions · width], and their factors.
/// All sub-dimensions count as always active, so there are no rows of chosen ones; `rows` only states their width.
template <class T>
PlaceSubDimensions<T> scaled(const Tensor& x, const Tensor& factors, const Tensor& y) {
  const std::int64_t tokens = x.shape()[0], count = factors.shape()[1];
  return {.dense = x.matrix<T>(),
          .rows = {nullptr, 0, x.shape()[1] / count},
          .slot = {},
          .index = {nullptr, tokens, 0},
          .always_on = count,
          .factors = factors.matrix<Accumulator<T>>(),
          .y = y.matrix<T>()};
}

}  // namespace

Tensor ScaleSubDimensions::forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& factors) const {
  saved = {.x = x, .factors = factors};
  const Tensor y = Tensor::empty(stream, x.dtype(), x.shape());
  dispatch_float(x.dtype(), [&]<class T>() { launch(stream, scaled<T>(x, factors, y)); });
  return y;
}

std::array<Tensor, 2> ScaleSubDimensions::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  const Tensor d_factors = Tensor::empty(stream, saved.factors.dtype(), saved.factors.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    const PlaceSubDimensions<T> forward = scaled<T>(saved.x, saved.factors, dx);
    launch(stream, PlaceSubDimensionsBackward<T>{.dense = forward.dense,
                                                 .rows = forward.rows,
                                                 .slot = forward.slot,
                                                 .index = forward.index,
                                                 .always_on = forward.always_on,
                                                 .factors = forward.factors,
                                                 .dy = dy.matrix<T>(),
                                                 .d_dense = dx.matrix<T>(),
                                                 .d_rows = {nullptr, 0, forward.rows.cols},
                                                 .d_factors = d_factors.matrix<Accumulator<T>>()});
  });
  return {dx, d_factors};
}

Tensor FactorsOfSubDimensions::forward(const Stream& stream, Saved& saved, const Tensor& logits) const {
  saved.logits = logits;
  const Tensor factors = Tensor::empty(stream, logits.dtype(), logits.shape());
  dispatch_accumulator(logits.dtype(), [&]<class A>() {
    launch(stream, SubDimensionFactors<A>{.logits = logits.matrix<A>(),
                                          .index = matrix_of_choices(index),
                                          .always_on = always_on,
                                          .scaling = scaling,
                                          .factors = factors.matrix<A>()});
  });
  return factors;
}

std::array<Tensor, 1> FactorsOfSubDimensions::backward(const Stream& stream, Saved& saved,
                                                       const Tensor& d_factors) const {
  if (scaling == SubDimensionScaling::ones) return {};
  const Tensor d_logits = Tensor::empty(stream, d_factors.dtype(), d_factors.shape());
  dispatch_accumulator(d_factors.dtype(), [&]<class A>() {
    launch(stream, SubDimensionFactorsBackward<A>{.logits = saved.logits.matrix<A>(),
                                                  .index = matrix_of_choices(index),
                                                  .always_on = always_on,
                                                  .scaling = scaling,
                                                  .d_factors = d_factors.matrix<A>(),
                                                  .d_logits = d_logits.matrix<A>()});
  });
  return {d_logits};
}

Tensor LoadOfSubDimensions::forward(const Stream& stream, Saved& saved, const Tensor& factors) const {
  saved.factors = factors;
  const Tensor load = Tensor::empty(stream, DType::f64, {sequences, load_width(factors.shape()[1])});
  dispatch_accumulator(factors.dtype(), [&]<class A>() {
    launch(stream, SubDimensionLoad<A>{.factors = factors.matrix<A>(),
                                       .index = matrix_of_choices(index),
                                       .seq_len = seq_len,
                                       .first = first,
                                       .load = load.matrix<double>()});
  });
  return load;
}

std::array<Tensor, 1> LoadOfSubDimensions::backward(const Stream& stream, Saved& saved, const Tensor& d_load) const {
  const Tensor d_factors = Tensor::empty(stream, saved.factors.dtype(), saved.factors.shape());
  dispatch_accumulator(saved.factors.dtype(), [&]<class A>() {
    launch(stream, SubDimensionLoadBackward<A>{.factors = saved.factors.matrix<A>(),
                                               .d_load = d_load.matrix<double>(),
                                               .seq_len = seq_len,
                                               .first = first,
                                               .d_factors = d_factors.matrix<A>()});
  });
  return {d_factors};
}

}  // namespace lyceum
