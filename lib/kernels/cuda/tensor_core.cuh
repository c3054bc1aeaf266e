#pragma once

#include "kernels/cuda/host_device.h"

namespace lyceum::cuda {

/// An element of a matrix.
struct Place {
  int row, col;
};

/// Which elements of its operands the instruction mma.m16n8k16 for 16-bit inputs leaves with which lane of a warp.
/// [PTX ISA, "Matrix Fragments for mma.m16n8k16"] Words of A and B hold two elements; these say where the first is.
struct MmaLayout {
  /// Word 0…3 of A [16, 16]; the second element is one column to the right.
  static constexpr LYCEUM_HOST_DEVICE Place a(int lane, int word) {
    return {lane / 4 + word % 2 * 8, lane % 4 * 2 + word / 2 * 8};
  }
  /// Word 0…1 of B [16, 8]; the second element is one row below.
  static constexpr LYCEUM_HOST_DEVICE Place b(int lane, int word) { return {lane % 4 * 2 + word * 8, lane / 4}; }
  /// Number 0…3 of C and D [16, 8].
  static constexpr LYCEUM_HOST_DEVICE Place c(int lane, int number) {
    return {lane / 4 + number / 2 * 8, lane % 4 * 2 + number % 2};
  }
};

/// Which row and which 16-byte chunk of a tile each lane names to ldmatrix.x4, so that the four words that it gets are
struct LoadLayout {
  /// those of A [16, 16] from a tile stored by rows of A, or, with .trans, of B for two neighbouring tiles
  /// [16, 8] of n from a tile stored by rows of k: words 0, 1 for the left one and 2, 3 for the right one;
  static constexpr LYCEUM_HOST_DEVICE Place a_or_transposed_b(int lane) { return {lane % 16, lane / 16}; }
  /// those of B for two neighbouring tiles [16, 8] of n, from a tile stored by rows of n.
  static constexpr LYCEUM_HOST_DEVICE Place b(int lane) { return {lane / 16 * 8 + lane % 8, lane / 8 % 2}; }
};

/// A tile of rows of `dim` 16-bit elements in shared memory, its 16-byte chunks permuted within each row so that eight
/// rows' chunks of one column lie in eight different groups of banks (ldmatrix), as the chunks of one row do (copies).
template <int dim>
struct SwizzledTile {
  static_assert(dim % 16 == 0);
  static constexpr int chunks = dim / 8;  // of a row
  static constexpr int row_bytes = 2 * dim;
  static constexpr LYCEUM_HOST_DEVICE int bytes(int rows) { return rows * row_bytes; }
  static constexpr int permuted = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : 2;  // chunks that change places
  /// Bytes from the tile's start.
  static constexpr LYCEUM_HOST_DEVICE int offset(int row, int chunk) {
    return row * row_bytes + (chunk ^ twist(row)) * 16;
  }

  /// offset() for one place in a 16 x 16 block (row < 16, chunk 0 or 1) of any such block: few different numbers, and
  /// constants next to them, so that they stay in registers.
  struct Walk {
    int start, twisted;
    constexpr LYCEUM_HOST_DEVICE explicit Walk(const Place& at)
        : start(at.row * row_bytes), twisted(twist(at.row) ^ at.col) {}
    /// `row` is a multiple of 16, `chunk` of 2.
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
