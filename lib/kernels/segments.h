#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lyceum {

/// Rows sorted by expert. Segment e is rows [begin[e], begin[e] + rows[e]); begins are multiples of `alignment`, and
/// begin[count] is the number of rows in all. Rows between two segments are padding.
struct Segments {
  /// Row counts are padded to multiples of this, so that compiled GEMMs are few; the padding rows hold zeros.
  static constexpr std::int64_t alignment = 32;

  std::span<const std::int64_t> begin;  // [count + 1]
  std::span<const std::int64_t> rows;   // [count]

  constexpr std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
  constexpr std::int64_t total() const { return begin.back(); }
};

/// A matrix whose rows are as wide as their segment says: experts of diverse sizes side by side. Segment e begins at
/// element offset[e] of `data` and has rows of width[e] elements without gaps.
template <class T>
struct SegmentedMatrix {
  T* data = nullptr;
  std::span<const std::int64_t> offset;  // [count]
  std::span<const std::int64_t> width;   // [count]

  constexpr operator SegmentedMatrix<const T>() const { return {data, offset, width}; }  // NOLINT: a view
  /// Rows of segment e, padding included.
  constexpr Matrix<T> segment(const Segments& segments, std::int64_t e) const {
    const auto i = static_cast<std::size_t>(e);
    return {data + offset[i], segments.begin[i + 1] - segments.begin[i], width[i]};
  }
};

/// Owns what Segments and SegmentedMatrix view: made once a batch from the rows that each expert received.
class SegmentTable {
 public:
  SegmentTable() = default;
  explicit SegmentTable(std::vector<std::int64_t> rows);
  /// One segment of exactly `rows` rows, without padding: a dense layer.
  static SegmentTable whole(std::int64_t rows);

  Segments view() const { return {begin_, rows_}; }
  std::int64_t total() const { return begin_.empty() ? 0 : begin_.back(); }

 private:
  std::vector<std::int64_t> begin_{0}, rows_;
};

/// Offsets and widths of one segmented matrix over a SegmentTable.
class SegmentLayout {
 public:
  SegmentLayout() = default;
  SegmentLayout(const Segments& segments, std::vector<std::int64_t> widths);

  /// Elements in all.
  std::int64_t size() const { return size_; }
  template <class T>
  SegmentedMatrix<T> over(T* data) const {
    return {data, offset_, width_};
  }

 private:
  std::vector<std::int64_t> offset_, width_;
  std::int64_t size_ = 0;
};

}  // namespace lyceum
