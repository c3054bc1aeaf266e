#pragma once

#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum::cuda {

/// A tile [rows, dim] of 16-bit elements as a Hopper GPU's wgmma reads it with 128-byte swizzle: panels of 64 columns,
/// a row of 128 bytes, its 16-byte chunks permuted among themselves by the row. Begins at a multiple of 1024 bytes.
template <int dim, int rows>
struct PanelTile {
  static_assert(dim % 64 == 0 && rows % 8 == 0);
  static constexpr int chunks = dim / 8, panel_bytes = rows * 128, tile_bytes = dim / 64 * panel_bytes;
  /// Bytes from the tile's start.
  static constexpr LYCEUM_HOST_DEVICE int offset(int row, int chunk) {
    return chunk / 8 * panel_bytes + row * 128 + (chunk % 8 ^ static_cast<int>(static_cast<unsigned>(row) % 8)) * 16;
  }

  /// What offset() of a chunk of the first panel, or of a place in it, is exclusive-ored from that of chunk 0.
  static constexpr LYCEUM_HOST_DEVICE int chunk_bits(int chunk) { return chunk * 16; }

  /// Where columns [16 k, 16 k + 16) of the rows from `row` on begin: an operand stored by rows, its columns summed
  /// over.
  static constexpr LYCEUM_HOST_DEVICE int columns(int row, int k) {
    return k / 4 * panel_bytes + row * 128 + k % 4 * 32;
  }
  /// Where rows [16 k, 16 k + 16) begin: an operand stored by the rows that are summed over.
  static constexpr LYCEUM_HOST_DEVICE int summed_rows(int k) { return k * 16 * 128; }
};

/// The 64 bits that name an operand in shared memory to wgmma. [PTX ISA, matrix-descriptor format]
struct MatrixDescriptor {
  static constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t of(std::uint32_t address, int leading_bytes, int stride_bytes) {
    return field(address) | field(static_cast<std::uint32_t>(leading_bytes)) << 16 |
           field(static_cast<std::uint32_t>(stride_bytes)) << 32 | swizzle_128;
  }
  /// Eight rows follow eight rows after 1024 bytes. The first distance is not used when 16 columns lie within a panel.
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t by_columns(std::uint32_t address) { return of(address, 16, 1024); }
  /// Eight summed rows follow eight after 1024 bytes, 64 columns follow 64 after a panel.
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t by_summed_rows(std::uint32_t address, int panel_bytes) {
    return of(address, panel_bytes, 1024);
  }

 private:
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t field(std::uint32_t bytes) { return (bytes & 0x3ffff) >> 4; }
};

}  // namespace lyceum::cuda
