#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/tensor.h"
#include "kernels/segments.h"

namespace lyceum {

/// Rows of experts that came from several ranks: they arrive grouped by source, then expert, and stand in segments
/// sorted by expert, then source, with padding.
struct SegmentedRows {
  std::shared_ptr<const SegmentTable> segments;
  Tensor arrived_of_segment;  // i64 [segment rows]; −1 for padding
  Tensor segment_of_arrived;  // i64 [arrived rows]
};
/// counts[source · experts + e]: rows that arrive from a source for expert e.
SegmentedRows into_segments(const Stream& stream, std::span<const std::int64_t> counts, std::size_t experts);
/// The same where the host does not know the counts. begin: i64 [sources · experts + 1], where each count's rows begin
/// among those `arrived`, the last element included, which is how many there are.
SegmentedRows into_segments(const Stream& stream, const Tensor& begin, std::int64_t arrived, std::int64_t experts);

/// y[i] = x[source[i] / divisor], zero where that is −1. x: [rows, width], of floats or i32; source: i64
Tensor gather_rows(const Stream& stream, const Tensor& x, const Tensor& source, std::int64_t divisor = 1);

}  // namespace lyceum
