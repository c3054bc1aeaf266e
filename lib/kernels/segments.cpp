#include "kernels/segments.h"

namespace lyceum {

SegmentTable::SegmentTable(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {
  constexpr std::int64_t alignment = Segments::alignment;
  for (const std::int64_t count : rows_) {
    require(count >= 0, "a segment of {} rows", count);
    begin_.push_back(begin_.back() + (count + alignment - 1) / alignment * alignment);
  }
}

SegmentTable SegmentTable::whole(std::int64_t rows) {
  SegmentTable table({rows});
  table.begin_.back() = rows;
  return table;
}

SegmentLayout::SegmentLayout(const Segments& segments, std::vector<std::int64_t> widths) : width_(std::move(widths)) {
  require(width_.size() == segments.rows.size(), "{} widths for {} segments", width_.size(), segments.rows.size());
  for (std::size_t e = 0; e < width_.size(); ++e) {
    offset_.push_back(size_);
    size_ += (segments.begin[e + 1] - segments.begin[e]) * width_[e];
  }
}

}  // namespace lyceum
