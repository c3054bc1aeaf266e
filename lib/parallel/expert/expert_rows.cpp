#include "parallel/expert/expert_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "kernels/permute.h"

namespace lyceum {

namespace {

/// Returns an uninitialised i64 tensor.
Tensor numbers(const Stream& stream, std::int64_t count) { return Tensor::empty(stream, DType::i64, {count}); }

/// Returns through[map[i]], or -1 where map[i] is -1.
Tensor compose(const Stream& stream, const Tensor& map, const Tensor& through) {
  const Tensor y = numbers(stream, map.size());
  launch(stream, ComposeIndices{.map = map.span<const std::int64_t>(),
                                .through = through.span<const std::int64_t>(),
                                .y = y.span<std::int64_t>()});
  return y;
}

/// The positions of sorted pairs (token, choice) in padded segments.
struct SegmentedRows {
  std::shared_ptr<const SegmentTable> segments;
  Tensor sorted_of_segment;  // i64 [segment rows]; −1 for padding
  Tensor segment_of_sorted;  // i64 [pairs]
};

/// Pads the rows of each expert to whole segments. `begin` [experts + 1]: the index of the first sorted pair of each
/// expert, and the number of pairs. `pairs`: that number, or an upper bound if the host does not wait for it (GPU, or
/// with bounds).
SegmentedRows segmented(const Stream& stream, const Tensor& begin, std::int64_t pairs, const KnownChoices& choices) {
  const std::span<const std::int64_t> known = choices.rows;
  const std::int64_t experts = begin.size() - 1;
  const Tensor segment_begin = numbers(stream, experts + 1), rows = numbers(stream, experts);
  std::shared_ptr<const SegmentTable> segments;
  std::span<const std::int64_t> wanted;  // other numbers mean a memory fault
  const std::int64_t most = choices.bounds ? choices.bounds->rows(1) : -1;
  if (asynchronous(stream) && !known.empty()) {
    pairs = std::reduce(known.begin(), known.end());
    segments = std::make_shared<SegmentTable>(stream, std::vector<std::int64_t>(known.begin(), known.end()));
    wanted = segments->view().rows;
  } else if (asynchronous(stream) || choices.bounds) {
    segments = std::make_shared<SegmentTable>(segment_begin, rows, pairs + experts * (Segments::alignment - 1), most);
  } else {
    std::vector<std::int64_t> counts = values_of<std::int64_t>(stream, begin);
    pairs = counts.back();
    std::adjacent_difference(counts.begin(), counts.end(), counts.begin());
    counts.erase(counts.begin());
    require(known.empty() || std::holds_alternative<RehearsalStream>(stream) || std::ranges::equal(counts, known),
            "experts have other numbers of rows than all ranks have counted: possible memory fault");
    segments = std::make_shared<SegmentTable>(stream, std::move(counts));
  }
  SegmentedRows placed{std::move(segments), {}, numbers(stream, pairs)};
  placed.sorted_of_segment = numbers(stream, placed.segments->total());
  launch(stream, PlaceInSegments{.arrived = begin.span<const std::int64_t>(),
                                 .begin = segment_begin.span<std::int64_t>(),
                                 .rows = rows.span<std::int64_t>(),
                                 .arrived_of_segment = placed.sorted_of_segment.span<std::int64_t>(),
                                 .segment_of_arrived = placed.segment_of_sorted.span<std::int64_t>(),
                                 .wanted = wanted,
                                 .most = most});
  return placed;
}

}  // namespace

TokenRows reordered(const Stream& stream, const TokenRows& sorted, const Tensor& sorted_of_row,
                    const Tensor& row_of_sorted) {
  return {.pair_of_row = compose(stream, sorted_of_row, sorted.pair_of_row),
          .row_of_pair = compose(stream, sorted.row_of_pair, row_of_sorted),
          .top_k = sorted.top_k};
}

std::shared_ptr<const ExpertRows> plan_rows(const Stream& stream, std::int64_t experts, const Tensor& index,
                                            const KnownChoices& known) {
  const Tensor pair_of_slot = numbers(stream, index.size()), slot_of_pair = numbers(stream, index.size());
  const Tensor begin = numbers(stream, experts + 1);
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> expected;
  if (!known.rows.empty()) {
    expected.assign(known.rows.begin(), known.rows.end());
  } else if (known.pairs >= 0) {
    expected.assign(order.size(), static_cast<double>(known.pairs) / static_cast<double>(experts));
  }
  launch(stream, SortByExpert{.index = index.matrix<std::int32_t>(),
                              .order = tensor_of(stream, {experts}, order).span<const std::int32_t>(),
                              .begin = begin.span<std::int64_t>(),
                              .slot_pair = pair_of_slot.span<std::int64_t>(),
                              .pair_slot = slot_of_pair.span<std::int64_t>(),
                              .others = known.others,
                              .expected = expected});
  const std::int64_t k = index.shape()[1];
  const std::int64_t most = known.bounds ? known.bounds->pairs(experts, k) : index.size();
  const SegmentedRows rows = segmented(stream, begin, known.pairs >= 0 ? known.pairs : most, known);
  return std::make_shared<ExpertRows>(
      ExpertRows{reordered(stream, {pair_of_slot, slot_of_pair, k}, rows.sorted_of_segment, rows.segment_of_sorted),
                 rows.segments});
}

}  // namespace lyceum
