#pragma once

#include "kernels/cuda/host_device.h"

namespace lyceum::cuda {

/// Row and column of an element of a matrix.
struct MatrixPosition {
  int row, col;
};

/// The elements of its operands that instruction mma.m16n8k16 for 16-bit inputs assigns to each lane of a warp. [PTX
/// ISA, "Matrix Fragments for mma.m16n8k16"] Words of A and B hold two elements; the functions return the position of
/// the first.
struct MmaLayout {
  /// Position of word 0 to 3 of A [16, 16]; the second element is one column to the right.
  static constexpr LYCEUM_HOST_DEVICE MatrixPosition a(int lane, int word) {
    return {lane / 4 + word % 2 * 8, lane % 4 * 2 + word / 2 * 8};
  }
  /// Position of word 0 to 1 of B [16, 8]; the second element is one row below.
  static constexpr LYCEUM_HOST_DEVICE MatrixPosition b(int lane, int word) {
    return {lane % 4 * 2 + word * 8, lane / 4};
  }
  /// Position of number 0 to 3 of C and D [16, 8].
  static constexpr LYCEUM_HOST_DEVICE MatrixPosition c(int lane, int number) {
    return {lane / 4 + number / 2 * 8, lane % 4 * 2 + number % 2};
  }
};

/// The addresses that the lanes of a warp pass to ldmatrix.x4: each function returns the row and, as `col`, the 16-byte
/// chunk of the tile that lane `lane` addresses.
struct LoadLayout {
  /// Addresses from which ldmatrix loads the four words of A [16, 16], of a tile stored by rows of A. With .trans, it
  /// loads the words of B of two adjacent tiles [16, 8] of n, of a tile stored by rows of k: words 0 and 1 of the left
  /// one, 2 and 3 of the right one.
  static constexpr LYCEUM_HOST_DEVICE MatrixPosition a_or_transposed_b(int lane) { return {lane % 16, lane / 16}; }
  /// Addresses from which ldmatrix loads the words of B of two adjacent tiles [16, 8] of n, of a tile stored by rows of
  /// n: words 0 and 1 of the left one, 2 and 3 of the right one.
  static constexpr LYCEUM_HOST_DEVICE MatrixPosition b(int lane) { return {lane / 16 * 8 + lane % 8, lane / 8 % 2}; }
};

/// Layout of a tile of rows of `dim` 16-bit elements in shared memory. The 16-byte chunks of a row are permuted, so
/// that neither the accesses of ldmatrix, to eight rows' chunks of one column, nor those of copies, to the chunks of
/// one row, have bank conflicts.
template <int dim>
struct SwizzledTile {
  static_assert(dim % 16 == 0);
  static constexpr int chunks = dim / 8;  // per row
  static constexpr int row_bytes = 2 * dim;
  /// Size of a tile of `rows` rows.
  static constexpr LYCEUM_HOST_DEVICE int bytes(int rows) { return rows * row_bytes; }
  // Number of chunks that are permuted among each other.
  static constexpr int permuted = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : 2;
  /// Byte offset of a chunk from the start of the tile.
  static constexpr LYCEUM_HOST_DEVICE int offset(int row, int chunk) {
    return row * row_bytes + (chunk ^ twist(row)) * 16;
  }

  /// offset() for a fixed position in a 16 x 16 block (row < 16, chunk 0 or 1) and any such block of the tile. It takes
  /// few numbers plus compile-time constants, so these stay in registers.
  struct Walk {
    int start, twisted;
    constexpr LYCEUM_HOST_DEVICE explicit Walk(const MatrixPosition& at)
        : start(at.row * row_bytes), twisted(twist(at.row) ^ at.col) {}
    /// Byte offset for the block at `row`, a multiple of 16, and `chunk`, a multiple of 2.
    constexpr LYCEUM_HOST_DEVICE int offset(int row, int chunk) const {
      return start + (((chunk & (permuted - 1)) ^ twisted) * 16) + row * row_bytes + chunk / permuted * permuted * 16;
    }
  };

 private:
  static constexpr LYCEUM_HOST_DEVICE int twist(int row) {
    return static_cast<int>(static_cast<unsigned>(row) / (8 / permuted) % permuted);
  }
};

}  // namespace lyceum::cuda
