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
  /// Segments `first` to `first + number`, with the rows that they have here.
  constexpr Segments part(std::size_t first, std::size_t number) const {
    return {begin.subspan(first, number + 1), rows.subspan(first, number)};
  }
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
  /// As Segments::part().
  constexpr SegmentedMatrix part(std::size_t first, std::size_t number) const {
    return {data, offset.subspan(first, number), width.subspan(first, number)};
  }
};

/// offset[e]: where segment e of `width[e]` columns begins in flat memory; offset[count]: where the last one ends.
struct LayOutSegments {
  Segments segments;
  std::span<const std::int64_t> width;  // [count]
  std::span<std::int64_t> offset;       // [count + 1]
};

void run(const CpuStream& stream, const LayOutSegments& layout);
void run(const CudaStream& stream, const LayOutSegments& layout);

/// Owns what Segments and SegmentedMatrix view: made once per batch from the rows that each expert received. Stored
/// where its stream computes.
class SegmentTable {
 public:
  SegmentTable() = default;
  SegmentTable(const Stream& stream, std::vector<std::int64_t> rows);
  /// What kernels write, and the host does not know: begin i64 [count + 1], rows i64 [count]. `most`: rows in all at
  /// most.
  SegmentTable(Tensor begin, Tensor rows, std::int64_t most);
  /// One segment of exactly `rows` rows, without padding: a dense layer.
  static SegmentTable whole(const Stream& stream, std::int64_t rows);

  Segments view() const;
  /// Rows of a matrix over the segments: where the last one ends, or more where the host does not know that. Nothing
  /// reads or writes what is beyond.
  std::int64_t total() const { return total_; }
  /// Segments::begin, where the host knows it; empty where it does not.
  std::span<const std::int64_t> known_begin() const { return known_begin_; }
  /// Segments::rows. Waits for the device where only that knows.
  std::vector<std::int64_t> rows_on_host(const Stream& stream) const;

 private:
  SegmentTable(const Stream& stream, std::vector<std::int64_t> begin, std::vector<std::int64_t> rows);

  std::vector<std::int64_t> known_begin_, known_rows_;
  Tensor begin_, rows_;
  std::int64_t total_ = 0;
};

/// Offsets and widths of one segmented matrix over a SegmentTable, where the table is stored.
class SegmentLayout {
 public:
  SegmentLayout() = default;
  SegmentLayout(const Stream& stream, const SegmentTable& table, const std::vector<std::int64_t>& widths);

  /// Elements in all; more where the host does not know the segments' rows.
  std::int64_t size() const { return size_; }
  template <class T>
  SegmentedMatrix<T> over(T* data) const {
    const std::size_t count = static_cast<std::size_t>(width_.size());
    if (!count) return {data, {}, {}};
    return {data, offset_.span<const std::int64_t>().first(count), width_.span<const std::int64_t>()};
  }

 private:
  Tensor offset_, width_;
  std::int64_t size_ = 0;
};

}  // namespace lyceum
