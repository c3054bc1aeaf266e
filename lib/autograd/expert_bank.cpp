#include "autograd/expert_bank.h"

#include "autograd/expert_matrices.h"
#include "kernels/grouped_activation.h"

namespace lyceum {

using Expert = ExpertBank::Expert;

Tensor ExpertBank::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const Segments rows = segments->view();
  const std::int64_t hidden = x.shape()[1], given = copies.rows(x);
  require(segments->total() == given && rows.count() == static_cast<std::int64_t>(experts->size()),
          "{} rows in {} segments for {} experts and {} rows", segments->total(), rows.count(), experts->size(), given);
  std::vector<std::int64_t> outer(experts->size(), hidden), in, inner;
  for (const Expert& expert : *experts) {
    inner.push_back(expert.down->shape[1]);
    in.push_back(inputs_of(activation) * inner.back());
  }
  saved.x = x;
  saved.outer = SegmentLayout(stream, *segments, outer);
  saved.in = SegmentLayout(stream, *segments, in);
  saved.inner = SegmentLayout(stream, *segments, inner);
  saved.hidden_rows = Tensor::empty(stream, x.dtype(), {saved.in.size()});
  const Tensor activated = Tensor::empty(stream, x.dtype(), {saved.inner.size()});
  const Tensor y = Tensor::empty(stream, x.dtype(), {given, hidden});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, GemmThenActivation<T>{.kind = activation,
                                         .segments = rows,
                                         .x = saved.outer.over(x.data<const T>()),
                                         .weights = expert_values<T>(*experts, &Expert::in),
                                         .hidden = saved.in.over(saved.hidden_rows.data<T>()),
                                         .activated = saved.inner.over(activated.data<T>()),
                                         .picked = copies.picked<T>(x)});
    launch(stream, GroupedGemm<T>{.segments = rows,
                                  .x = saved.inner.over(activated.data<const T>()),
                                  .weights = expert_values<T>(*experts, &Expert::down),
                                  .y = saved.outer.over(y.data<T>()),
                                  .transpose_weights = true});
  });
  return y;
}

std::array<Tensor, 1> ExpertBank::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Segments rows = segments->view();
  saved.activated = Tensor::empty(stream, dy.dtype(), {saved.inner.size()});
  saved.d_hidden = Tensor::empty(stream, dy.dtype(), {saved.in.size()});
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, GemmThenActivationBackward<T>{.kind = activation,
                                                 .segments = rows,
                                                 .dy = saved.outer.over(dy.data<const T>()),
                                                 .weights = expert_values<T>(*experts, &Expert::down),
                                                 .hidden = saved.in.over(saved.hidden_rows.data<const T>()),
                                                 .d_hidden = saved.in.over(saved.d_hidden.data<T>()),
                                                 .activated = saved.inner.over(saved.activated.data<T>())});
  });
  saved.hidden_rows = {};
  const Tensor dx = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, GroupedGemm<T>{.segments = rows,
                                  .x = saved.in.over(saved.d_hidden.data<const T>()),
                                  .weights = expert_values<T>(*experts, &Expert::in),
                                  .y = saved.outer.over(dx.data<T>())});
  });
  return {copies.sums(stream, dx)};
}

std::vector<Parameter*> ExpertBank::parameters() const {
  std::vector<Parameter*> all;
  for (const Expert& expert : *experts) {
    all.push_back(expert.in);
    all.push_back(expert.down);
  }
  return all;
}

void ExpertBank::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Segments rows = segments->view();
  dispatch_float(dy.dtype(), [&]<class T>() {
    const auto d_hidden = saved.in.over(saved.d_hidden.data<const T>());
    const auto activated = saved.inner.over(saved.activated.data<const T>());
    add_expert_gradients<T>(stream,
                            {.segments = rows,
                             .dy = d_hidden,
                             .x = saved.outer.over(saved.x.data<const T>()),
                             .d_weights = {},
                             .picked = copies.picked<T>(saved.x)},
                            *experts, &Expert::in);
    add_expert_gradients<T>(
        stream, {.segments = rows, .dy = saved.outer.over(dy.data<const T>()), .x = activated, .d_weights = {}},
        *experts, &Expert::down);
  });
}

}  // namespace lyceum
