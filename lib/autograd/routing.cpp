#include "autograd/routing.h"

#include "kernels/hash_tokens.h"
#include "kernels/router.h"
#include "kernels/router_backward.h"
#include "kernels/uniform_choices.h"

namespace lyceum {

namespace {

/// Returns a view of `tensor`, empty if it is undefined.
template <class T>
Matrix<T> matrix_or_none(const Tensor& tensor) {
  return tensor.defined() ? tensor.matrix<T>() : Matrix<T>{};
}
template <class T>
std::span<T> span_or_none(const Tensor& tensor) {
  return tensor.defined() ? tensor.span<T>() : std::span<T>{};
}

}  // namespace

std::array<Tensor, 3> Route::forward(const Stream& stream, Saved& saved, const Tensor& logits) const {
  const std::int64_t tokens = logits.shape()[0], experts = logits.shape()[1];
  require(k >= 1 && k <= experts - skip, "cannot choose the top {} of {} experts after skipping {}", k, experts, skip);
  saved = {.logits = logits,
           .norms = Tensor::empty(stream, logits.dtype(), {tokens, 2}),
           .index = Tensor::empty(stream, DType::i32, {tokens, k})};
  const Tensor gates = Tensor::empty(stream, logits.dtype(), {tokens, k});
  const Tensor load = sequences > 0 ? Tensor::empty(stream, DType::f64, {sequences, load_width(experts)}) : Tensor{};
  dispatch_accumulator(logits.dtype(), [&]<class A>() {
    launch(stream, RouteTokens<A>{.logits = logits.matrix<A>(),
                                  .index = saved.index.matrix<std::int32_t>(),
                                  .gates = gates.matrix<A>(),
                                  .norms = saved.norms.matrix<A>(),
                                  .scores = scores,
                                  .rule = rule,
                                  .gate_scale = gate_scale,
                                  .choices = span_or_none<const double>(choices),
                                  .bias = span_or_none<const A>(bias),
                                  .group = span_or_none<const std::int32_t>(group),
                                  .groups = groups,
                                  .group_limit = group_limit,
                                  .group_score = group_score,
                                  .skip = skip,
                                  .always_on = always_on,
                                  .even = even,
                                  .first_token = first_token,
                                  .entropy = entropy || tally.entropy.defined(),
                                  .seq_len = seq_len,
                                  .first = first,
                                  .load = matrix_or_none<double>(load),
                                  .counts = matrix_or_none<std::int64_t>(tally.counts),
                                  .probability = span_or_none<double>(tally.probability),
                                  .entropies = span_or_none<double>(tally.entropy)});
  });
  return {gates, saved.index, load};
}

std::array<Tensor, 1> Route::backward(const Stream& stream, Saved& saved, const Tensor& d_gates, const Tensor&,
                                      const Tensor& d_load) const {
  const Tensor& logits = saved.logits;
  const Tensor d_logits = Tensor::empty(stream, logits.dtype(), logits.shape());
  dispatch_accumulator(logits.dtype(), [&]<class A>() {
    launch(stream, RouteTokensBackward<A>{.logits = logits.matrix<A>(),
                                          .norms = saved.norms.matrix<A>(),
                                          .index = saved.index.matrix<std::int32_t>(),
                                          .d_gates = matrix_or_none<const A>(d_gates),
                                          .d_load = matrix_or_none<const double>(d_load),
                                          .scores = scores,
                                          .rule = rule,
                                          .gate_scale = gate_scale,
                                          .choices = span_or_none<const double>(choices),
                                          .entropy = entropy,
                                          .seq_len = seq_len,
                                          .first = first,
                                          .d_logits = d_logits.matrix<A>()});
  });
  return {d_logits};
}

std::array<Tensor, 2> RouteByHash::forward(const Stream& stream, Saved&) const {
  const Shape shape{tokens.size(), 1};
  const Tensor gates = Tensor::empty(stream, type, shape), index = Tensor::empty(stream, DType::i32, shape);
  dispatch_accumulator(type, [&]<class A>() {
    launch(stream, HashTokens<A>{.tokens = tokens.span<const std::int32_t>(),
                                 .layer = layer,
                                 .experts = experts,
                                 .index = index.span<std::int32_t>(),
                                 .gates = gates.span<A>(),
                                 .counts = span_or_none<std::int64_t>(tally.counts),
                                 .probability = span_or_none<double>(tally.probability)});
  });
  return {gates, index};
}

std::array<Tensor, 2> RouteUniformly::forward(const Stream& stream, Saved&) const {
  const Shape shape{tokens, k};
  const Tensor gates = Tensor::empty(stream, type, shape), index = Tensor::empty(stream, DType::i32, shape);
  const UniformDraw draw{
      .seed = seed, .layer = layer, .first = first, .period = period, .step = span_or_none<const double>(step)};
  dispatch_accumulator(type, [&]<class A>() {
    launch(stream, UniformChoices<A>{.draw = draw,
                                     .experts = experts,
                                     .gate = gate,
                                     .index = index.matrix<std::int32_t>(),
                                     .gates = gates.matrix<A>(),
                                     .counts = matrix_or_none<std::int64_t>(tally.counts),
                                     .probability = span_or_none<double>(tally.probability),
                                     .entropy = span_or_none<double>(tally.entropy)});
  });
  return {gates, index};
}

}  // namespace lyceum
