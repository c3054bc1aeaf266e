#include "parallel/expert/dispatch.h"

#include "kernels/padding.h"
#include "kernels/permute.h"

namespace lyceum {

Tensor Dispatch::forward(const Stream& stream, Saved&, const Tensor& x) const {
  const Tensor sent = Tensor::empty(stream, x.dtype(), {exchange->pair_of_sent.size(), x.shape()[1]});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, GatherRows<T>{.x = x.matrix<T>(),
                                 .source = exchange->pair_of_sent.span<const std::int64_t>(),
                                 .y = sent.matrix<T>(),
                                 .divisor = exchange->top_k});
  });
  return exchange_forward(stream, *exchange, sent);
}

std::array<Tensor, 1> Dispatch::backward(const Stream& stream, Saved&, const Tensor& d_rows) const {
  const Tensor d_sent = exchange_back(stream, *exchange, d_rows);
  const Tensor dx = Tensor::empty(stream, d_rows.dtype(), {exchange->tokens, d_rows.shape()[1]});
  dispatch_float(dx.dtype(), [&]<class T>() {
    launch(stream, CombineRows<T>{.x = d_sent.matrix<T>(),
                                  .slot = exchange->sent_of_pair.span<const std::int64_t>(),
                                  .k = exchange->top_k,
                                  .gate = {},
                                  .y = dx.matrix<T>()});
  });
  return {dx};
}

Tensor Combine::forward(const Stream& stream, Saved& saved, const Tensor& rows, const Tensor& gates) const {
  saved = {.sent = exchange_back(stream, *exchange, rows), .gates = gates};
  const Tensor y = Tensor::empty(stream, rows.dtype(), {exchange->tokens, rows.shape()[1]});
  dispatch_float(rows.dtype(), [&]<class T>() {
    launch(stream, CombineRows<T>{.x = saved.sent.matrix<T>(),
                                  .slot = exchange->sent_of_pair.span<const std::int64_t>(),
                                  .k = exchange->top_k,
                                  .gate = gates.matrix<Accumulator<T>>(),
                                  .y = y.matrix<T>()});
  });
  return y;
}

std::array<Tensor, 2> Combine::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor d_sent = Tensor::empty(stream, dy.dtype(), saved.sent.shape());
  const Tensor d_gates = Tensor::empty(stream, saved.gates.dtype(), saved.gates.shape());
  dispatch_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, CombineRowsBackward<T>{.x = saved.sent.matrix<T>(),
                                          .dy = dy.matrix<T>(),
                                          .slot = exchange->sent_of_pair.span<const std::int64_t>(),
                                          .k = exchange->top_k,
                                          .gate = saved.gates.matrix<A>(),
                                          .dx = d_sent.matrix<T>(),
                                          .d_gate = d_gates.matrix<A>()});
    if (exchange->alone()) {  // the sent order has padding there, which no token writes
      launch(stream, ClearPadding<T>{.segments = exchange->segments->view(), .x = d_sent.matrix<T>()});
    }
  });
  saved.sent = {};
  return {exchange_forward(stream, *exchange, d_sent), d_gates};
}

}  // namespace lyceum
