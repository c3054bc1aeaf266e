#include "parallel/expert/gather_rows.h"

#include "kernels/permute.h"

namespace lyceum {

Tensor gather_rows(const Stream& stream, const Tensor& x, const Tensor& source, std::int64_t divisor) {
  const Tensor y = Tensor::empty(stream, x.dtype(), {source.size(), x.shape()[1]});
  const auto gather = [&]<class T>() {
    launch(
        stream,
        GatherRows<T>{
            .x = x.matrix<T>(), .source = source.span<const std::int64_t>(), .y = y.matrix<T>(), .divisor = divisor});
  };
  if (x.dtype() == DType::i32) {
    gather.operator()<std::int32_t>();
  } else {
    dispatch_float(x.dtype(), gather);
  }
  return y;
}

}  // namespace lyceum
