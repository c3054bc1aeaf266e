#include "autograd/grouped_linear.h"

#include <functional>

#include "autograd/expert_matrices.h"

namespace lyceum {

Tensor GroupedLinear::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const std::size_t experts = weights->size();
  const std::int64_t rows = copies.rows(x);
  require(experts > 0 && segments->view().count() == std::ssize(*weights) && segments->total() == rows,
          "{} rows in {} segments do not match {} matrices and {} rows of input", segments->total(),
          segments->view().count(), experts, rows);
  const Shape shape = weights->front()->shape;
  saved = {.x = x,
           .in = SegmentLayout(stream, *segments, std::vector<std::int64_t>(experts, shape[1])),
           .out = SegmentLayout(stream, *segments, std::vector<std::int64_t>(experts, shape[0]))};
  const Tensor y = Tensor::empty(stream, x.dtype(), {rows, shape[0]});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, GroupedGemm<T>{.segments = segments->view(),
                                  .x = saved.in.over(x.data<const T>()),
                                  .weights = expert_values<T>(*weights, std::identity{}),
                                  .y = saved.out.over(y.data<T>()),
                                  .transpose_weights = true,
                                  .picked = copies.picked<T>(x)});
  });
  return y;
}

std::array<Tensor, 1> GroupedLinear::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(stream, dy.dtype(), {dy.shape()[0], saved.x.shape()[1]});
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, GroupedGemm<T>{.segments = segments->view(),
                                  .x = saved.out.over(dy.data<const T>()),
                                  .weights = expert_values<T>(*weights, std::identity{}),
                                  .y = saved.in.over(dx.data<T>())});
  });
  return {copies.sums(stream, dx)};
}

void GroupedLinear::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  dispatch_float(dy.dtype(), [&]<class T>() {
    add_expert_gradients<T>(stream,
                            {.segments = segments->view(),
                             .dy = saved.out.over(dy.data<const T>()),
                             .x = saved.in.over(saved.x.data<const T>()),
                             .d_weights = {},
                             .picked = copies.picked<T>(saved.x)},
                            *weights, std::identity{});
  });
}

}  // namespace lyceum
