#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/tensor_core.cuh"

namespace lyceum::grouped {

/// A block's tile of c is 128 x 128; 2 x 4 warps compute 64 x 32 of it each, 32 of k a step.
struct MmaTiling {
  static constexpr int m = 128, n = 128, k = 32, stages = 4, threads = 256;
  static constexpr int warps_n = 4, warp_m = 64, warp_n = 32;
  static constexpr int operand_bytes = 128 * k * 2;
  static constexpr int shared_bytes = stages * 2 * operand_bytes;
};

/// An operand's tile in shared memory: lines as they lie in global memory (128 lines of 32 along k, or 32 lines of 128
/// along m or n), in chunks, swizzled so that the eight lines that ldmatrix reads at once lie in different banks.
template <bool AlongK>
struct MmaOperand {
  static constexpr int lines = AlongK ? 128 : 32;
  static constexpr int chunks = AlongK ? 4 : 16;  // a line

  /// Byte of a chunk.
  LYCEUM_HOST_DEVICE static int offset(int line, int chunk) {
    return line * (chunks * 16) + (AlongK ? chunk ^ ((line >> 1) & 3) : chunk ^ (line & 7)) * 16;
  }
};

/// Byte that lane `lane` names in ldmatrix.x4 for the 16 x 16 fragment of a that begins at (row, k).
template <bool AlongK>
LYCEUM_HOST_DEVICE int a_fragment(int lane, int row, int k) {
  if (AlongK) {
    const cuda::Place at = cuda::LoadLayout::a_or_transposed_b(lane);
    return MmaOperand<true>::offset(row + at.row, k / 8 + at.col);
  }
  const cuda::Place at = cuda::LoadLayout::b(lane);  // as b would be read
  return MmaOperand<false>::offset(k + at.row, row / 8 + at.col);
}

/// The same for two 16 x 8 fragments of b side by side, from (k, col): registers 0, 1 are the first, 2, 3 the second.
template <bool AlongK>
LYCEUM_HOST_DEVICE int b_fragment(int lane, int col, int k) {
  if (AlongK) {
    const cuda::Place at = cuda::LoadLayout::b(lane);
    return MmaOperand<true>::offset(col + at.row, k / 8 + at.col);
  }
  const cuda::Place at = cuda::LoadLayout::a_or_transposed_b(lane);
  return MmaOperand<false>::offset(k + at.row, col / 8 + at.col);
}

/// Bytes [shift, shift + 16) of two chunks in a row; `shift` is even.
LYCEUM_HOST_DEVICE Chunk realigned(const Chunk& first, const Chunk& second, unsigned shift) {
  std::uint32_t word[8] = {first.word[0],  first.word[1],  first.word[2],  first.word[3],
                           second.word[0], second.word[1], second.word[2], second.word[3]};
  if (shift & 8) {  // selections, since an index that varies would send the words to local memory
    LYCEUM_UNROLL
    for (int i = 0; i < 6; ++i) word[i] = word[i + 2];
  }
  if (shift & 4) {
    LYCEUM_UNROLL
    for (int i = 0; i < 5; ++i) word[i] = word[i + 1];
  }
  Chunk result;
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) result.word[i] = shift & 2 ? word[i] >> 16 | word[i + 1] << 16 : word[i];
  return result;
}

/// The first `count` elements of a chunk, zeros after them.
LYCEUM_HOST_DEVICE Chunk first_elements(Chunk chunk, int count) {
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (count <= 2 * i) chunk.word[i] = 0;
    if (count == 2 * i + 1) chunk.word[i] &= 0xffffu;
  }
  return chunk;
}

}  // namespace lyceum::grouped
