#include "parallel/expert/expert_rows.h"

#include "kernels/permute.h"

namespace lyceum {

namespace {

Tensor permuted(const Stream& stream, const Tensor& x, const std::vector<std::int64_t>& source) {
  const Tensor y = Tensor::empty(stream, x.dtype(), {std::ssize(source), x.shape()[1]});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, GatherRows<T>{.x = x.matrix<T>(), .source = source, .y = y.matrix<T>()});
  });
  return y;
}

Tensor gather(const Stream& stream, const ExpertRows& rows, const Tensor& own) {
  const Tensor arrived = all_gather(stream, rows.packed, permuted(stream, own, rows.own_of_packed));
  return permuted(stream, arrived, rows.arrived_of_segment);
}

Tensor reduce(const Stream& stream, const ExpertRows& rows, const Tensor& partial) {
  const Tensor packed = reduce_scatter(stream, rows.packed, permuted(stream, partial, rows.segment_of_arrived));
  return permuted(stream, packed, rows.packed_of_own);
}

/// Own segments' rows in order, padding left out.
void pack(ExpertRows& rows, const Segments& own) {
  rows.packed_of_own.assign(static_cast<std::size_t>(own.total()), -1);
  for (std::int64_t e = 0; e < own.count(); ++e) {
    const std::int64_t begin = own.begin[static_cast<std::size_t>(e)];
    for (std::int64_t row = begin; row < begin + own.rows[static_cast<std::size_t>(e)]; ++row) {
      rows.packed_of_own[static_cast<std::size_t>(row)] = std::ssize(rows.own_of_packed);
      rows.own_of_packed.push_back(row);
    }
  }
}

/// Places arrived rows in the segments of all; counts[r · experts + e]: rows of rank r for expert e.
void arrange(ExpertRows& rows, const std::vector<std::int64_t>& counts, std::size_t experts) {
  std::vector<std::int64_t> all(experts, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) all[i % experts] += counts[i];
  auto segments = std::make_shared<SegmentTable>(std::move(all));
  std::vector<std::int64_t> next(segments->view().begin.begin(), segments->view().begin.end());
  rows.arrived_of_segment.assign(static_cast<std::size_t>(segments->total()), -1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::int64_t row = 0; row < counts[i]; ++row) {
      std::int64_t& segment_row = next[i % experts];
      rows.arrived_of_segment[static_cast<std::size_t>(segment_row)] = std::ssize(rows.segment_of_arrived);
      rows.segment_of_arrived.push_back(segment_row++);
    }
  }
  rows.segments = std::move(segments);
}

}  // namespace

std::shared_ptr<const ExpertRows> plan_rows(const ProcessGroup& group, const SegmentTable& own) {
  auto rows = std::make_shared<ExpertRows>();
  const Segments segments = own.view();
  pack(*rows, segments);
  const auto experts = segments.rows.size(), ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> counts(ranks * experts);
  group.all_gather(segments.rows, counts);
  rows->packed = {.group = &group, .rows = std::vector<std::int64_t>(ranks, 0), .routed = true};
  for (std::size_t i = 0; i < counts.size(); ++i) rows->packed.rows[i / experts] += counts[i];
  arrange(*rows, counts, experts);
  return rows;
}

Tensor GatherExpertRows::forward(const Stream& stream, Saved&, const Tensor& own) const {
  return gather(stream, *rows, own);
}

std::array<Tensor, 1> GatherExpertRows::backward(const Stream& stream, Saved&, const Tensor& dy) const {
  return {reduce(stream, *rows, dy)};
}

Tensor ReduceExpertRows::forward(const Stream& stream, Saved&, const Tensor& partial) const {
  return reduce(stream, *rows, partial);
}

std::array<Tensor, 1> ReduceExpertRows::backward(const Stream& stream, Saved&, const Tensor& d_own) const {
  return {gather(stream, *rows, d_own)};
}

}  // namespace lyceum
