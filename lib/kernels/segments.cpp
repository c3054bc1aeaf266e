#include "kernels/segments.h"

#include <algorithm>
#include <numeric>

#include "core/copy.h"
#include "core/round_up.h"

namespace lyceum {

namespace {

/// Returns Segments::begin for segments with these numbers of rows.
std::vector<std::int64_t> begins(const std::vector<std::int64_t>& rows) {
  constexpr std::int64_t alignment = Segments::alignment;
  std::vector<std::int64_t> begin{0};
  for (const std::int64_t count : rows) {
    require(count >= 0, "a segment cannot have {} rows", count);
    begin.push_back(begin.back() + round_up(count, alignment));
  }
  return begin;
}

}  // namespace

SegmentTable::SegmentTable(const Stream& stream, std::vector<std::int64_t> begin, const std::vector<std::int64_t>& rows)
    : known_begin_(std::move(begin)),
      begin_(tensor_of(stream, {std::ssize(known_begin_)}, known_begin_)),
      rows_(tensor_of(stream, {std::ssize(rows)}, rows)),
      total_(known_begin_.back()),
      most_each_(total_) {}

SegmentTable::SegmentTable(const Stream& stream, const std::vector<std::int64_t>& rows)
    : SegmentTable(stream, begins(rows), rows) {}

SegmentTable::SegmentTable(Tensor begin, Tensor rows, std::int64_t most, std::int64_t most_each)
    : begin_(std::move(begin)), rows_(std::move(rows)), total_(most), most_each_(most) {
  if (most_each < 0) return;
  most_each_ = std::min(most, round_up(most_each, Segments::alignment));
  total_ = std::min(most, rows_.size() * most_each_);
}

SegmentTable SegmentTable::whole(const Stream& stream, std::int64_t rows) { return {stream, {0, rows}, {rows}}; }

Segments SegmentTable::view() const {
  if (!begin_.defined()) return {};
  return {begin_.span<const std::int64_t>(), rows_.span<const std::int64_t>()};
}

SegmentLayout::SegmentLayout(const Stream& stream, const SegmentTable& table, const std::vector<std::int64_t>& widths)
    : width_(tensor_of(stream, {std::ssize(widths)}, widths)) {
  const Segments segments = table.view();
  require(std::ssize(widths) == segments.count(), "there are {} widths for {} segments", widths.size(),
          segments.count());
  if (widths.empty()) return;
  offset_ = Tensor::empty(stream, DType::i64, {segments.count() + 1});
  launch(stream,
         LayOutSegments{
             .segments = segments, .width = width_.span<const std::int64_t>(), .offset = offset_.span<std::int64_t>()});
  const std::span<const std::int64_t> begin = table.begin_on_host();
  if (begin.empty()) {
    size_ = std::min(table.total() * *std::max_element(widths.begin(), widths.end()),
                     table.most_each() * std::accumulate(widths.begin(), widths.end(), std::int64_t{0}));
  } else {
    for (std::size_t e = 0; e < widths.size(); ++e) size_ += (begin[e + 1] - begin[e]) * widths[e];
  }
}

}  // namespace lyceum
