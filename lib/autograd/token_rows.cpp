#include "autograd/token_rows.h"

namespace lyceum {

Tensor TokenRows::sums(const Stream& stream, const Tensor& rows, const Tensor& gates) const {
  if (top_k == 0) return rows;
  const Tensor sums = Tensor::empty(stream, rows.dtype(), {row_of_pair.size() / top_k, rows.shape()[1]});
  dispatch_float(rows.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch(stream, CombineRows<T>{.x = rows.matrix<T>(),
                                  .slot = row_of_pair.span<const std::int64_t>(),
                                  .k = top_k,
                                  .gate = gates.defined() ? gates.matrix<A>() : Matrix<A>(),
                                  .y = sums.matrix<T>()});
  });
  return sums;
}

}  // namespace lyceum
