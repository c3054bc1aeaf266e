#pragma once

#include <string_view>

#include "kernels/checks.h"
#include "kernels/segment_bias.h"

namespace lyceum {

/// Throws an Error unless the operands have an entry for each segment, and the columns are within picked rows. The
/// widths of segments may be in device memory: the kernels check them.
template <class Work, class Rows, class Vectors>
void require_segments(std::string_view kernel, const Work& work, const Rows& rows, const Vectors& vectors) {
  const std::int64_t count = work.segments.count();
  require_length(kernel, "begin", work.segments.begin, count + 1);
  require_length(kernel, "list of biases", vectors, count);
  require(work.columns.first >= 0 && work.columns.count >= 0, "{}: columns {} to {} do not exist", kernel,
          work.columns.first, work.columns.end());
  if constexpr (requires { work.picked; }) {
    if (work.picked) {
      require(work.columns.end() <= work.picked.x.cols, "{}: columns to {} do not exist in rows of {}", kernel,
              work.columns.end(), work.picked.x.cols);
      return require_length(kernel, "width", rows.width, count);
    }
  }
  require_length(kernel, "offset", rows.offset, count);
  require_length(kernel, "width", rows.width, count);
}

}  // namespace lyceum
