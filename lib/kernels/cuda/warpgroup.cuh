#pragma once

#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum::cuda {

/// Layout of a tile [rows, dim] of 16-bit elements with 128-byte swizzle, as wgmma on Hopper GPUs reads it. The tile
/// consists of panels of 64 columns. A row of a panel takes 128 bytes, and its 16-byte chunks are permuted depending on
/// the row. The tile must begin at a multiple of 1024 bytes.
template <int dim, int rows>
struct PanelTile {
  static_assert(dim % 64 == 0 && rows % 8 == 0);
  static constexpr int chunks = dim / 8, panel_bytes = rows * 128, tile_bytes = dim / 64 * panel_bytes;
  /// Byte offset of a chunk from the start of the tile.
  static constexpr LYCEUM_HOST_DEVICE int offset(int row, int chunk) {
    return chunk / 8 * panel_bytes + row * 128 + (chunk % 8 ^ static_cast<int>(static_cast<unsigned>(row) % 8)) * 16;
  }

  /// offset() of a chunk of a panel is that of the row's chunk 0 exclusive-or this value.
  static constexpr LYCEUM_HOST_DEVICE int chunk_bits(int chunk) { return chunk * 16; }

  /// Byte offset of columns [16 k, 16 k + 16) of the rows from `row` on, for an operand whose columns are summed over.
  static constexpr LYCEUM_HOST_DEVICE int columns(int row, int k) {
    return k / 4 * panel_bytes + row * 128 + k % 4 * 32;
  }
  /// Byte offset of rows [16 k, 16 k + 16), for an operand whose rows are summed over.
  static constexpr LYCEUM_HOST_DEVICE int summed_rows(int k) { return k * 16 * 128; }
};

/// Matrix descriptors: the 64 bits that describe an operand in shared memory to wgmma. [PTX ISA, matrix-descriptor
/// format]
struct MatrixDescriptor {
  static constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
  /// Encodes a descriptor with 128-byte swizzle. `address` and distances are in bytes, multiples of 16.
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t of(std::uint32_t address, int leading_bytes, int stride_bytes) {
    return field(address) | field(static_cast<std::uint32_t>(leading_bytes)) << 16 |
           field(static_cast<std::uint32_t>(stride_bytes)) << 32 | swizzle_128;
  }
  /// Descriptor of an operand whose columns are summed over: groups of eight rows are 1024 bytes apart. The leading
  /// distance is not used, because 16 columns are within one panel.
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t by_columns(std::uint32_t address) { return of(address, 16, 1024); }
  /// Descriptor of an operand whose rows are summed over: groups of eight rows are 1024 bytes apart, groups of 64
  /// columns one panel.
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t by_summed_rows(std::uint32_t address, int panel_bytes) {
    return of(address, panel_bytes, 1024);
  }

 private:
  static constexpr LYCEUM_HOST_DEVICE std::uint64_t field(std::uint32_t bytes) { return (bytes & 0x3ffff) >> 4; }
};

}  // namespace lyceum::cuda
