#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lyceum {

/// The rows of a matrix, sorted by expert. Segment e, the rows of expert e, is [begin[e], begin[e] + rows[e]). All
/// begin[e] are multiples of `alignment` (except at the end of SegmentTable::whole()), and begin[count] is the total
/// number of rows. The rows from the end of a segment to the start of the next one are padding and contain zeros.
/// Example with rows = {3, 0, 40}: begin = {0, 32, 32, 96}. A view: both spans are in the memory of the stream's device
/// and are owned by a SegmentTable.
struct Segments {
  /// The padding limits the number of distinct GEMM shapes, and so of compiled GEMMs.
  static constexpr std::int64_t alignment = 32;

  std::span<const std::int64_t> begin;  // [count + 1]
  std::span<const std::int64_t> rows;   // [count]

  constexpr std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
  constexpr std::int64_t total() const { return begin.back(); }
  /// Returns a view of segments [first, first + number). Row offsets remain those of the whole matrix.
  constexpr Segments part(std::size_t first, std::size_t number) const {
    return {begin.subspan(first, number + 1), rows.subspan(first, number)};
  }
};

/// A matrix whose rows have a different width in each segment, for experts of different sizes. Segment e begins at
/// element offset[e] of `data` and has rows of width[e] elements, without gaps. A view, like Segments.
template <class T>
struct SegmentedMatrix {
  T* data = nullptr;
  std::span<const std::int64_t> offset;  // [count]
  std::span<const std::int64_t> width;   // [count]

  constexpr operator SegmentedMatrix<const T>() const { return {data, offset, width}; }  // NOLINT: a view
  /// Returns the rows of segment e, including padding: [begin[e + 1] − begin[e], width[e]].
  constexpr Matrix<T> segment(const Segments& segments, std::int64_t e) const {
    const auto i = static_cast<std::size_t>(e);
    return {data + offset[i], segments.begin[i + 1] - segments.begin[i], width[i]};
  }
  /// Returns a view of segments [first, first + number), for use with Segments::part(first, number).
  constexpr SegmentedMatrix part(std::size_t first, std::size_t number) const {
    return {data, offset.subspan(first, number), width.subspan(first, number)};
  }
};

/// One vector for each segment, such as the biases of a bank of experts. The list and the vectors are in the memory of
/// the stream's device. An empty list means that there are none.
template <class T>
using SegmentVectors = std::span<T* const>;  // [count]

/// Computes the offsets of a SegmentedMatrix: segment e of width[e] columns begins at element offset[e] of flat memory,
/// and the last segment ends at offset[count].
struct LayOutSegments {
  Segments segments;
  std::span<const std::int64_t> width;  // [count]
  std::span<std::int64_t> offset;       // [count + 1]
};

void run(const CpuStream& stream, const LayOutSegments& layout);
void run(const CudaStream& stream, const LayOutSegments& layout);

/// Owns the arrays that a Segments views, in the memory of its stream's device. Created once per batch and layer, from
/// the number of rows that each expert has received.
class SegmentTable {
 public:
  SegmentTable() = default;
  /// Creates a table of rows.size() segments with rows[e] rows each, padded to Segments::alignment. Throws an Error if
  /// a count is negative.
  SegmentTable(const Stream& stream, const std::vector<std::int64_t>& rows);
  /// Creates a table from tensors that kernels write and whose values the host does not know: begin i64 [count + 1],
  /// rows i64 [count]. `most`: upper bound of the total number of rows, padding included. `most_each`: upper bound of
  /// the rows of each segment, without padding; −1: unknown.
  SegmentTable(Tensor begin, Tensor rows, std::int64_t most, std::int64_t most_each = -1);
  /// Creates a table of one segment of exactly `rows` rows, without padding, as for a dense layer.
  static SegmentTable whole(const Stream& stream, std::int64_t rows);

  Segments view() const;
  /// Returns the number of rows to allocate for a matrix over the segments: the end of the last segment, or an upper
  /// bound if only the device knows the end. Kernels neither read nor write rows after that end.
  std::int64_t total() const { return total_; }
  /// Returns Segments::begin in host memory; empty if only the device knows the values.
  std::span<const std::int64_t> begin_on_host() const { return known_begin_; }
  /// Returns an upper bound of the rows of a segment, padding included.
  std::int64_t most_each() const { return most_each_; }

 private:
  SegmentTable(const Stream& stream, std::vector<std::int64_t> begin, const std::vector<std::int64_t>& rows);

  std::vector<std::int64_t> known_begin_;
  Tensor begin_, rows_;
  std::int64_t total_ = 0, most_each_ = 0;
};

/// Owns the offsets and widths of one SegmentedMatrix over a SegmentTable, in the memory of the table's device.
class SegmentLayout {
 public:
  SegmentLayout() = default;
  /// `widths`: columns of each segment. Throws an Error unless there is one per segment.
  SegmentLayout(const Stream& stream, const SegmentTable& table, const std::vector<std::int64_t>& widths);

  /// Returns the number of elements to allocate: the exact size, or an upper bound if only the device knows the
  /// segments' rows.
  std::int64_t size() const { return size_; }
  /// Returns the matrix with this layout over `data`, which has size() elements and is owned by the caller.
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
