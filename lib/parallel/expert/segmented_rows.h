#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "kernels/segments.h"

namespace lyceum {

/// Rows of experts that came from several ranks: they arrive grouped by source, then expert, and stand in segments
/// sorted by expert, then source, with padding.
struct SegmentedRows {
  std::shared_ptr<const SegmentTable> segments;
  std::vector<std::int64_t> arrived_of_segment;  // [segment rows]; −1 for padding
  std::vector<std::int64_t> segment_of_arrived;  // [arrived rows]
};
/// counts[source · experts + e]: rows that arrive from a source for expert e.
SegmentedRows into_segments(const std::vector<std::int64_t>& counts, std::size_t experts);

/// y[i] = x[source[i]], zero where that is −1. x: [rows, width]
Tensor gather_rows(const Stream& stream, const Tensor& x, const std::vector<std::int64_t>& source);

}  // namespace lyceum
