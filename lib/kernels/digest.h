#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/cuda/host_device.h"
#include "kernels/flat_blocks.h"
#include "kernels/instances.h"

namespace lyceum {

// Digests of memory, which reveal changed bits. The digest of a block is Σ_i word_i · f_i modulo 2⁶⁴ over its
// 32-bit words, with factors f_i = (2i + 1) · c modulo 2³² and an odd constant c (a multilinear hash [Carter & Wegman
// 1981]). A change of one word always changes the digest; a change of several words leaves it unchanged with a
// probability of about 2⁻³². Integer sums do not depend on the order of summation, so the digest depends only on the
// memory.

/// Returns the term of a block's digest for its word number `index`.
LYCEUM_HOST_DEVICE std::uint64_t digest_of_word(std::uint32_t word, std::uint32_t index) {
  return std::uint64_t{word} * std::uint64_t{(2 * index + 1) * 0x9e3779b1u};
}
/// Returns the bits of an element as one word; for a double, the sum of its two words modulo 2³².
template <class T>
LYCEUM_HOST_DEVICE std::uint32_t word_of(T x) {
  if constexpr (sizeof(T) == sizeof(std::uint64_t)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    return static_cast<std::uint32_t>(bits) + static_cast<std::uint32_t>(bits >> 32);
  } else if constexpr (sizeof(T) == sizeof(std::uint32_t)) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    return bits;
  } else {
    return x.bits;  // bfloat16
  }
}

/// Returns what element number `index` of a block adds to the block's digest: the term of its word, or the sum of both
/// terms for a double.
template <class T>
LYCEUM_HOST_DEVICE std::uint64_t digest_of_element(T x, std::uint32_t index) {
  if constexpr (sizeof(T) == sizeof(std::uint64_t)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    return digest_of_word(static_cast<std::uint32_t>(bits), 2 * index) +
           digest_of_word(static_cast<std::uint32_t>(bits >> 32), 2 * index + 1);
  } else {
    return digest_of_word(word_of(x), index);
  }
}

/// digests[b] = the digest of block b, which is elements [b · flat_block, (b + 1) · flat_block) of x.
template <class T>
struct DigestBlocks {
  std::span<const T> x;
  std::span<std::uint64_t> digests;  // [flat_blocks_of(x.size())]
};

template <class T>
void run(const CpuStream& stream, const DigestBlocks<T>& digest);
template <class T>
void run(const CudaStream& stream, const DigestBlocks<T>& digest);

/// Returns the digest of `count` bytes of host memory, taken as one block and padded with zeros to whole words.
std::uint64_t digest_of_bytes(const void* bytes, std::size_t count);

#define LYCEUM_DIGEST_KERNELS(INSTANCE) LYCEUM_FLOATS(INSTANCE, DigestBlocks)

}  // namespace lyceum
