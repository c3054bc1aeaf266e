#include "autograd/token_rows.h"

namespace lyceum {

Tensor TokenRows::sums(const Stream& stream, const Tensor& d_rows) const {
  if (top_k == 0) return d_rows;
  const Tensor sums = Tensor::empty(stream, d_rows.dtype(), {row_of_pair.size() / top_k, d_rows.shape()[1]});
  dispatch_float(d_rows.dtype(), [&]<class T>() {
    launch(stream, CombineRows<T>{.x = d_rows.matrix<T>(),
                                  .slot = row_of_pair.span<const std::int64_t>(),
                                  .k = top_k,
                                  .gate = {},
                                  .y = sums.matrix<T>()});
  });
  return sums;
}

}  // namespace lyceum
