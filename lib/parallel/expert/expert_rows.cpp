#include "parallel/expert/expert_rows.h"

namespace lyceum {

namespace {

Tensor gather(const Stream& stream, const ExpertRows& rows, const Tensor& own) {
  const Tensor arrived = all_gather(stream, rows.packed, gather_rows(stream, own, rows.own.segment_of_arrived));
  return gather_rows(stream, arrived, rows.segmented.arrived_of_segment);
}

Tensor reduce(const Stream& stream, const ExpertRows& rows, const Tensor& partial) {
  const Tensor packed =
      reduce_scatter(stream, rows.packed, gather_rows(stream, partial, rows.segmented.segment_of_arrived));
  return gather_rows(stream, packed, rows.own.arrived_of_segment);
}

}  // namespace

std::shared_ptr<const ExpertRows> plan_rows(const Stream& stream, const ProcessGroup& group, const SegmentTable& own) {
  const std::vector<std::int64_t> sent = own.rows_on_host(stream);
  const std::size_t experts = sent.size(), ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> counts(ranks * experts);
  group.all_gather(sent, counts);
  RowShards packed{.group = &group, .rows = std::vector<std::int64_t>(ranks, 0), .routed = true};
  for (std::size_t i = 0; i < counts.size(); ++i) packed.rows[i / experts] += counts[i];
  return std::make_shared<ExpertRows>(ExpertRows{.packed = std::move(packed),
                                                 .own = into_segments(stream, sent, experts),
                                                 .segmented = into_segments(stream, counts, experts)});
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
