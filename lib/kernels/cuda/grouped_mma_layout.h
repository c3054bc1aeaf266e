#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/tensor_core.cuh"

namespace lyceum::grouped {

/// Tile extents of the mma.sync kernel. A block computes a tile of c of 128 x 128 in steps of 32 along k. Its 8 warps
/// form a 2 x 4 grid, and each computes 64 x 32 of the tile.
struct MmaTiling {
  static constexpr int m = 128, n = 128, k = 32, stages = 4, threads = 256;
  static constexpr int warps_n = 4, warp_m = 64, warp_n = 32;
  static constexpr int operand_bytes = 128 * k * 2;
  static constexpr int shared_bytes = stages * 2 * operand_bytes;
};

/// Layout of an operand's tile in shared memory. It has the same lines as global memory: 128 lines of 32 elements along
/// k, or 32 lines of 128 elements along m or n. The 16-byte chunks of a line are swizzled such that the eight chunks
/// that ldmatrix reads at once are in different banks.
template <bool AlongK>
struct MmaOperand {
  static constexpr int lines = AlongK ? 128 : 32;
  static constexpr int chunks = AlongK ? 4 : 16;  // chunks per line

  /// Byte offset of a chunk from the start of the tile.
  LYCEUM_HOST_DEVICE static int offset(int line, int chunk) {
    return line * (chunks * 16) + (AlongK ? chunk ^ ((line >> 1) & 3) : chunk ^ (line & 7)) * 16;
  }
};

/// Byte offset that lane `lane` passes to ldmatrix.x4 to load the 16 x 16 fragment of a at (row, k).
template <bool AlongK>
LYCEUM_HOST_DEVICE int a_fragment(int lane, int row, int k) {
  if (AlongK) {
    const cuda::MatrixPosition at = cuda::LoadLayout::a_or_transposed_b(lane);
    return MmaOperand<true>::offset(row + at.row, k / 8 + at.col);
  }
  const cuda::MatrixPosition at = cuda::LoadLayout::b(lane);  // the address pattern of b gives the transposed fragment
  return MmaOperand<false>::offset(k + at.row, row / 8 + at.col);
}

/// Byte offset that lane `lane` passes to ldmatrix.x4 to load two adjacent 16 x 8 fragments of b from (k, col) on.
/// Registers 0 and 1 receive the first fragment, 2 and 3 the second.
template <bool AlongK>
LYCEUM_HOST_DEVICE int b_fragment(int lane, int col, int k) {
  if (AlongK) {
    const cuda::MatrixPosition at = cuda::LoadLayout::b(lane);
    return MmaOperand<true>::offset(col + at.row, k / 8 + at.col);
  }
  const cuda::MatrixPosition at = cuda::LoadLayout::a_or_transposed_b(lane);
  return MmaOperand<false>::offset(k + at.row, col / 8 + at.col);
}

/// Returns bytes [shift, shift + 16) of two consecutive chunks. `shift` is even and less than 16.
LYCEUM_HOST_DEVICE Chunk realigned(const Chunk& first, const Chunk& second, unsigned shift) {
  std::uint32_t word[8] = {first.word[0],  first.word[1],  first.word[2],  first.word[3],
                           second.word[0], second.word[1], second.word[2], second.word[3]};
  if (shift & 8) {  // selected without a variable index, which would put the words into local memory
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

/// Returns the chunk with all elements after the first `count` set to zero.
LYCEUM_HOST_DEVICE Chunk first_elements(Chunk chunk, int count) {
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (count <= 2 * i) chunk.word[i] = 0;
    if (count == 2 * i + 1) chunk.word[i] &= 0xffffu;
  }
  return chunk;
}

}  // namespace lyceum::grouped
