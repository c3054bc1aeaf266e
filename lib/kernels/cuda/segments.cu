#include "kernels/checks.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/segments.h"

namespace lyceum {

namespace {

constexpr int segments_threads = 128;

/// Computes the offsets of all segments with one block, 128 segments at a time.
__global__ void __launch_bounds__(segments_threads) lay_out(LayOutSegments layout) {
  const std::int64_t count = layout.segments.count();
  std::int64_t placed = 0;
  for (std::int64_t base = 0; base < count; base += segments_threads) {
    const std::int64_t e = base + threadIdx.x;
    const bool here = e < count;
    const std::int64_t size = here ? (layout.segments.begin[e + 1] - layout.segments.begin[e]) * layout.width[e] : 0;
    std::int64_t total = 0;
    const std::int64_t before = exclusive_sum<segments_threads>(size, total);
    if (here) layout.offset[e] = placed + before;
    placed += total;
  }
  if (threadIdx.x == 0) layout.offset[count] = placed;
}

}  // namespace

void run(const CudaStream& stream, const LayOutSegments& layout) {
  const std::int64_t count = layout.segments.count();
  require_length("LayOutSegments", "width", layout.width, count);
  require_length("LayOutSegments", "offset", layout.offset, count + 1);
  start(stream, "LayOutSegments", lay_out, 1, segments_threads, layout);
}

}  // namespace lyceum
