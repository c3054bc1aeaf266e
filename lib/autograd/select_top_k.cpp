#include "autograd/routing.h"
#include "kernels/router.h"
#include "kernels/selection.h"

namespace lyceum {

std::array<Tensor, 2> SelectTopK::forward(const Stream& stream, Saved& saved, const Tensor& scores) const {
  const std::int64_t tokens = scores.shape()[0];
  require(k >= 1 && k <= scores.shape()[1], "top {} of {} experts", k, scores.shape()[1]);
  saved = {.index = Tensor::empty(stream, DType::i32, {tokens, k}),
           .gates = Tensor::empty(stream, scores.dtype(), {tokens, k}),
           .sums = renormalize ? Tensor::empty(stream, scores.dtype(), {tokens}) : Tensor{},
           .shape = scores.shape()};
  dispatch_accumulator(scores.dtype(), [&]<class A>() {
    launch(stream, TopK<A>{.scores = scores.matrix<A>(),
                           .index = saved.index.matrix<std::int32_t>(),
                           .value = saved.gates.matrix<A>()});
    if (even) {  // after the selection that it replaces, whose time counts
      launch(stream, EvenChoices<A>{.scores = scores.matrix<A>(),
                                    .index = saved.index.matrix<std::int32_t>(),
                                    .value = saved.gates.matrix<A>()});
    }
    if (renormalize) {
      launch(stream, NormalizeGates<A>{.gates = saved.gates.matrix<A>(), .sums = saved.sums.span<A>()});
    }
  });
  return {saved.gates, saved.index};
}

std::array<Tensor, 1> SelectTopK::backward(const Stream& stream, Saved& saved, const Tensor& d_gates,
                                           const Tensor&) const {
  const Tensor d_scores = Tensor::empty(stream, d_gates.dtype(), saved.shape);
  dispatch_accumulator(d_gates.dtype(), [&]<class A>() {
    launch(stream, SelectionBackward<A>{.index = saved.index.matrix<std::int32_t>(),
                                        .gates = saved.gates.matrix<A>(),
                                        .d_gates = d_gates.matrix<A>(),
                                        .sums = renormalize ? saved.sums.span<const A>() : std::span<const A>{},
                                        .d_scores = d_scores.matrix<A>()});
  });
  return {d_scores};
}

}  // namespace lyceum
