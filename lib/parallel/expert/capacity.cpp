#include "parallel/expert/capacity.h"

#include "kernels/capacity.h"

namespace lyceum {

Tensor within_capacity(const Stream& stream, const TokenLayout& layout, const Capacity& capacity, const Tensor& index) {
  const std::int64_t first = layout.own().first, k = index.shape()[1];
  const Tensor counts = Tensor::empty(stream, DType::i64, {layout.sequences() * k, capacity.experts});
  launch(stream, CountChoices{.index = index.matrix<const std::int32_t>(),
                              .seq_len = layout.seq_len(),
                              .first = first,
                              .counts = counts.matrix<std::int64_t>()});
  const Tensor all = layout.of_all_ranks(stream, counts), kept = Tensor::empty(stream, DType::i32, index.shape());
  launch(stream,
         DropChoices{
             .index = index.matrix<const std::int32_t>(),
             .counts = all.matrix<const std::int64_t>(),
             .ranks = all.shape()[0] / counts.shape()[0],
             .rank = layout.rank(),
             .seq_len = layout.seq_len(),
             .first = first,
             .factor = capacity.factor,
             .choices = capacity.choices.defined() ? capacity.choices.span<const double>() : std::span<const double>(),
             .kept = kept.matrix<std::int32_t>(),
             .dropped = capacity.dropped.defined() ? capacity.dropped.matrix<std::int64_t>() : Matrix<std::int64_t>{}});
  return kept;
}

}  // namespace lyceum
