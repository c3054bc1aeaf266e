#include "kernels/digest.h"

#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

namespace {

template <class T>
std::uint64_t digest_of_block(const T* x, std::int64_t count) {
  const auto elements = static_cast<std::int32_t>(count);
  std::uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int32_t i = 0; i < elements; ++i) sum += digest_of_element(x[i], static_cast<std::uint32_t>(i));
  return sum;
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const DigestBlocks<T>& digest) {
  const std::int64_t size = std::ssize(digest.x), blocks = flat_blocks_of(size);
  require_length("DigestBlocks", "digests", digest.digests, blocks);
  parallel_for(stream, blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * flat_block;
      digest.digests[static_cast<std::size_t>(b)] =
          digest_of_block(digest.x.data() + begin, std::min(flat_block, size - begin));
    }
  });
}

std::uint64_t digest_of_bytes(const void* bytes, std::size_t count) {
  const auto* from = static_cast<const std::byte*>(bytes);
  const std::size_t words = count / sizeof(std::uint32_t);
  std::uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, from + i * sizeof word, sizeof word);
    sum += digest_of_word(word, static_cast<std::uint32_t>(i));
  }
  std::uint32_t last = 0;
  if (count % sizeof last > 0) std::memcpy(&last, from + words * sizeof last, count % sizeof last);
  return sum + digest_of_word(last, static_cast<std::uint32_t>(words));
}

LYCEUM_DIGEST_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
