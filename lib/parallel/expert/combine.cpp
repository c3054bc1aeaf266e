#include "parallel/expert/combine.h"

#include "kernels/padding.h"
#include "kernels/permute.h"

namespace lyceum {

Tensor Combine::forward(const Stream& stream, Saved& saved, const Tensor& answers, const Tensor& gates) const {
  saved = {.answers = answers, .gates = gates};
  return rows->copies.sums(stream, answers, gates);
}

std::array<Tensor, 2> Combine::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor d_answers = Tensor::empty(stream, dy.dtype(), saved.answers.shape());
  const Tensor d_gates = Tensor::empty(stream, saved.gates.dtype(), saved.gates.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, CombineRowsBackward<T>{.x = saved.answers.matrix<T>(),
                                          .dy = dy.matrix<T>(),
                                          .slot = rows->copies.row_of_pair.span<const std::int64_t>(),
                                          .k = rows->copies.top_k,
                                          .gate = saved.gates.matrix<A>(),
                                          .dx = d_answers.matrix<T>(),
                                          .d_gate = d_gates.matrix<A>()});
    launch(stream, ClearPadding<T>{.segments = rows->segments->view(), .x = d_answers.matrix<T>()});
  });
  saved.answers = {};
  return {d_answers, d_gates};
}

}  // namespace lyceum
