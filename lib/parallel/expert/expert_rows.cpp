#include "parallel/expert/expert_rows.h"

namespace lyceum {

namespace {

Tensor gather(const Stream& stream, const ExpertRows& rows, const Tensor& own) {
  const Tensor arrived = all_gather(stream, rows.packed, gather_rows(stream, own, rows.own_of_packed));
  return gather_rows(stream, arrived, rows.segmented.arrived_of_segment);
}

Tensor reduce(const Stream& stream, const ExpertRows& rows, const Tensor& partial) {
  const Tensor packed =
      reduce_scatter(stream, rows.packed, gather_rows(stream, partial, rows.segmented.segment_of_arrived));
  return gather_rows(stream, packed, rows.packed_of_own);
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
  rows->segmented = into_segments(counts, experts);
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
