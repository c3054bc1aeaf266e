#include "autograd/embedding.h"

#include "kernels/embedding.h"

namespace lyceum {

Tensor Embedding::forward(const Stream& stream, Saved&) const {
  const Tensor y = Tensor::empty(stream, table->value.dtype(), {tokens.size(), table->value.shape()[1]});
  dispatch_float(y.dtype(), [&]<class T>() {
    launch(stream, EmbeddingForward<T>{.tokens = tokens.span<const std::int32_t>(),
                                       .table = table->value.matrix<T>(),
                                       .y = y.matrix<T>(),
                                       .first = first,
                                       .vocab = vocab});
  });
  return y;
}

void Embedding::weight_grad(const Stream& stream, Saved&, const Tensor& dy) const {
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, EmbeddingWeightGrad<T>{.tokens = tokens.span<const std::int32_t>(),
                                          .dy = dy.matrix<T>(),
                                          .d_table = table->gradient.matrix<Accumulator<T>>(),
                                          .first = first,
                                          .vocab = vocab});
  });
}

}  // namespace lyceum
