#include "kernels/segments.h"

#include "kernels/cpu/checks.h"

namespace lyceum {

void run(const CpuStream&, const LayOutSegments& layout) {
  const std::int64_t count = layout.segments.count();
  require_length("LayOutSegments", "width", layout.width, count);
  require_length("LayOutSegments", "offset", layout.offset, count + 1);
  layout.offset[0] = 0;
  for (std::size_t e = 0; e < layout.width.size(); ++e) {
    const std::int64_t rows = layout.segments.begin[e + 1] - layout.segments.begin[e];
    layout.offset[e + 1] = layout.offset[e] + rows * layout.width[e];
  }
}

}  // namespace lyceum
