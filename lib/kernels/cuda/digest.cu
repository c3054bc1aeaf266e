#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/digest.h"

namespace lyceum {

namespace {

constexpr int digest_threads = 256;

/// One warp per block of the tensor, in a grid-stride loop.
template <class T>
__global__ void __launch_bounds__(digest_threads) digest_blocks(DigestBlocks<T> digest) {
  const auto size = static_cast<std::int64_t>(digest.x.size()), blocks = flat_blocks_of(size);
  const std::int64_t walkers = static_cast<std::int64_t>(gridDim.x) * (digest_threads / warp_size);
  const std::int64_t self = (static_cast<std::int64_t>(blockIdx.x) * digest_threads + threadIdx.x) / warp_size;
  for (std::int64_t b = self; b < blocks; b += walkers) {
    const std::int64_t begin = b * flat_block, rest = size - begin, count = rest < flat_block ? rest : flat_block;
    std::uint64_t sum = 0;
    for (std::int64_t i = threadIdx.x % warp_size; i < count; i += warp_size) {
      sum += digest_of_element(digest.x[begin + i], static_cast<std::uint32_t>(i));
    }
    sum = join_warp(sum, Sum{});
    if (threadIdx.x % warp_size == 0) digest.digests[b] = sum;
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const DigestBlocks<T>& digest) {
  const std::int64_t blocks = flat_blocks_of(static_cast<std::int64_t>(digest.x.size()));
  require_length("DigestBlocks", "digests", digest.digests, blocks);
  if (blocks == 0) return;
  start(stream, "DigestBlocks", digest_blocks<T>, blocks_for(blocks, digest_threads / warp_size), digest_threads,
        digest);
}

LYCEUM_DIGEST_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
