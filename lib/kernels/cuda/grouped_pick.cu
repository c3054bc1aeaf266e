#include <algorithm>
#include <iterator>
#include <limits>

#include "core/allocator.h"
#include "kernels/cuda/grouped_kernels.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum::grouped {

namespace {

constexpr int pick_threads = 256;

/// Computes row indices once per product, so that tiles need not divide: many tiles read the same row. One thread per
/// row, in a grid-stride loop.
__global__ void __launch_bounds__(pick_threads)
    pick_kernel(std::span<const std::int64_t> source, std::int64_t divisor, std::int32_t* row, IndexCheck check) {
  const auto count = static_cast<std::int64_t>(source.size());
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * pick_threads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * pick_threads) {
    const std::int64_t from = source[i];
    row[i] = check.passes(from) && from >= 0 ? static_cast<std::int32_t>(from / divisor) : -1;
  }
}

}  // namespace

PickedIndices pick(const CudaStream& stream, const char* name, std::span<const std::int64_t> source,
                   std::int64_t divisor, std::int64_t rows) {
  require(rows <= std::numeric_limits<std::int32_t>::max(),
          "{}: rows cannot be picked from {}, which is more than 2^31 - 1", name, rows);
  PickedIndices picked;
  picked.memory =
      stream.memory().allocate(std::max<std::size_t>(source.size(), 1) * sizeof(std::int32_t), MemoryKind::buffers);
  auto* row = reinterpret_cast<std::int32_t*>(picked.memory.get());
  const IndexCheck check(stream, name, "source", std::numeric_limits<std::int64_t>::min(), rows * divisor);
  start(stream, name, pick_kernel, blocks_for(std::ssize(source), pick_threads), pick_threads, source, divisor, row,
        check);
  picked.row = row;
  return picked;
}

}  // namespace lyceum::grouped
