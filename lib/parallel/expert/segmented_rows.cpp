#include "parallel/expert/segmented_rows.h"

#include "kernels/permute.h"

namespace lyceum {

SegmentedRows into_segments(const std::vector<std::int64_t>& counts, std::size_t experts) {
  std::vector<std::int64_t> all(experts, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) all[i % experts] += counts[i];
  auto segments = std::make_shared<SegmentTable>(std::move(all));
  std::vector<std::int64_t> next(segments->view().begin.begin(), segments->view().begin.end());
  SegmentedRows rows;
  rows.arrived_of_segment.assign(static_cast<std::size_t>(segments->total()), -1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::int64_t row = 0; row < counts[i]; ++row) {
      std::int64_t& segment_row = next[i % experts];
      rows.arrived_of_segment[static_cast<std::size_t>(segment_row)] = std::ssize(rows.segment_of_arrived);
      rows.segment_of_arrived.push_back(segment_row++);
    }
  }
  rows.segments = std::move(segments);
  return rows;
}

Tensor gather_rows(const Stream& stream, const Tensor& x, const std::vector<std::int64_t>& source) {
  const Tensor y = Tensor::empty(stream, x.dtype(), {std::ssize(source), x.shape()[1]});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, GatherRows<T>{.x = x.matrix<T>(), .source = source, .y = y.matrix<T>()});
  });
  return y;
}

}  // namespace lyceum
