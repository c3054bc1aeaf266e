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

/// The digest of a block is Σ over its 32-bit words of word · (2 · place + 1) · c, modulo 2⁶⁴, c odd: a word that
/// changes always changes it, several that change at once leave it as it was with a chance of about 2⁻³². Sums of whole
/// numbers have no order, so it depends on nothing but the memory. (A multilinear hash: Carter & Wegman 1981.)
LYCEUM_HOST_DEVICE std::uint64_t digest_of_word(std::uint32_t word, std::uint32_t place) {
  return std::uint64_t{word} * std::uint64_t{(2 * place + 1) * 0x9e3779b1u};
}
/// The bits of an element as one word: those of a double are added up.
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

/// Of an element; `place` counts elements.
template <class T>
LYCEUM_HOST_DEVICE std::uint64_t digest_of_element(T x, std::uint32_t place) {
  if constexpr (sizeof(T) == sizeof(std::uint64_t)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    return digest_of_word(static_cast<std::uint32_t>(bits), 2 * place) +
           digest_of_word(static_cast<std::uint32_t>(bits >> 32), 2 * place + 1);
  } else {
    return digest_of_word(word_of(x), place);
  }
}

/// digests[b] of each block of flat_block elements of x, which is flat.
template <class T>
struct DigestBlocks {
  std::span<const T> x;
  std::span<std::uint64_t> digests;  // [flat_blocks_of(x.size())]
};

template <class T>
void run(const CpuStream& stream, const DigestBlocks<T>& digest);
template <class T>
void run(const CudaStream& stream, const DigestBlocks<T>& digest);

/// Of bytes in the host's memory, as if they were one block of words with zeros behind the last byte.
std::uint64_t digest_of_bytes(const void* bytes, std::size_t count);

#define LYCEUM_DIGEST_KERNELS(INSTANCE) LYCEUM_FLOATS(INSTANCE, DigestBlocks)

}  // namespace lyceum
