#include "parallel/expert/segmented_rows.h"

#include <utility>
#include <vector>

#include "core/copy.h"
#include "kernels/permute.h"

namespace lyceum {

namespace {

/// Both maps, and the table where `known` has none yet. begin: as in into_segments().
SegmentedRows segmented_rows(const Stream& stream, const Tensor& begin, std::int64_t arrived, std::int64_t experts,
                             std::shared_ptr<const SegmentTable> known) {
  const auto numbers = [&](std::int64_t count) { return Tensor::empty(stream, DType::i64, {count}); };
  const Tensor segment_begin = numbers(experts + 1), rows = numbers(experts);
  constexpr std::int64_t padding = Segments::alignment - 1;
  if (!known) {
    known = std::make_shared<SegmentTable>(segment_begin, rows, arrived + experts * padding);
  }
  SegmentedRows placed{.segments = std::move(known), .arrived_of_segment = {}, .segment_of_arrived = numbers(arrived)};
  placed.arrived_of_segment = numbers(placed.segments->total());
  launch(stream, PlaceInSegments{.arrived = begin.span<const std::int64_t>(),
                                 .begin = segment_begin.span<std::int64_t>(),
                                 .rows = rows.span<std::int64_t>(),
                                 .arrived_of_segment = placed.arrived_of_segment.span<std::int64_t>(),
                                 .segment_of_arrived = placed.segment_of_arrived.span<std::int64_t>()});
  return placed;
}

}  // namespace

SegmentedRows into_segments(const Stream& stream, std::span<const std::int64_t> counts, std::size_t experts) {
  std::vector<std::int64_t> rows(experts, 0), begin{0};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    rows[i % experts] += counts[i];
    begin.push_back(begin.back() + counts[i]);
  }
  return segmented_rows(stream, tensor_of(stream, {std::ssize(begin)}, begin), begin.back(),
                        static_cast<std::int64_t>(experts), std::make_shared<SegmentTable>(stream, std::move(rows)));
}

SegmentedRows into_segments(const Stream& stream, const Tensor& begin, std::int64_t arrived, std::int64_t experts) {
  return segmented_rows(stream, begin, arrived, experts, nullptr);
}

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
