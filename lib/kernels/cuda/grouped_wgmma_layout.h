#pragma once

#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum::grouped {

/// A block's tile of c is 128 x N; two warpgroups compute 64 rows of it each, a third one loads, 64 of k a stage.
template <int N>
struct WgmmaTiling {
  static_assert(N % 64 == 0 && N <= 256);
  static constexpr int m = 128, n = N, k = 64, threads = 384, consumers = 2;
  static constexpr int box_lines = 64;               // along m, n or k, of 64 elements = 128 bytes
  static constexpr int box_bytes = box_lines * 128;  // what a TMA load brings
  static constexpr int a_bytes = m * k * 2, b_bytes = n * k * 2, stage_bytes = a_bytes + b_bytes;
  static constexpr int stages = (220 * 1024) / stage_bytes;
  static constexpr int barriers = 2 * stages;
  /// Stages begin at a multiple of 1024, which the hardware's swizzle is relative to.
  static constexpr int shared_bytes = 1024 + stages * stage_bytes + barriers * 8;
};

/// Where CU_TENSOR_MAP_SWIZZLE_128B puts byte `byte` of line `line` of a box of lines of 128 bytes.
LYCEUM_HOST_DEVICE std::uint32_t tma_swizzle(std::uint32_t line, std::uint32_t byte) {
  return line * 128 + (byte ^ (line % 8 * 16));
}

/// Shared-memory matrix descriptor of wgmma with the 128-byte swizzle (PTX ISA, "Matrix descriptor format"): start
/// address in bits 0-13, leading offset in 16-29, stride offset in 32-45, all in units of 16 bytes; 1 in bits 62-63.
LYCEUM_HOST_DEVICE std::uint64_t wgmma_descriptor(std::uint32_t address, std::uint32_t leading, std::uint32_t stride) {
  const auto field = [](std::uint32_t bytes) { return static_cast<std::uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(leading) << 16 | field(stride) << 32 | std::uint64_t{1} << 62;
}

/// An operand's stage in shared memory as TMA boxes of 64 lines. Along k: a line is an index of m or n with 64 of k;
/// boxes follow each other along m or n, so that all of it is one run of lines. Else a line is one k with 64 indices
/// of m or n.
template <bool AlongK>
struct WgmmaOperand {
  /// Bytes from one group of 8 lines to the next.
  static constexpr std::uint32_t stride = 8 * 128;
  /// Bytes from 64 indices of m or n to the next 64; not used by the hardware along k.
  static constexpr std::uint32_t leading = AlongK ? 16 : 64 * 128;
  /// Bytes from 16 of k to the next 16.
  static constexpr std::uint32_t k_step = AlongK ? 32 : 16 * 128;

  /// Descriptor of 16 of k, from k = 16 `step` on, for the rows or columns from `begin` (a multiple of 64) on.
  LYCEUM_HOST_DEVICE static std::uint64_t descriptor(std::uint32_t stage_address, int begin, int step) {
    const std::uint32_t address = stage_address + begin / 64 * (64 * 128) + step * k_step;
    return wgmma_descriptor(address, leading, stride);
  }
};

/// Row (of 64) and column of accumulator `i` of thread `thread` (of 128) of a warpgroup.
LYCEUM_HOST_DEVICE int wgmma_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
LYCEUM_HOST_DEVICE int wgmma_col(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

/// Transposes the 4 x 4 words that four neighbouring lanes hold, so that a lane has 16 bytes of a row: word[b] of lane
/// q is to become word[q] of lane b. Two exchanges: with the lane two away, then with the neighbour.
struct QuadTranspose {
  bool upper, odd;  // of lane q = 2 upper + odd

  LYCEUM_HOST_DEVICE explicit QuadTranspose(int lane) : upper(lane & 2), odd(lane & 1) {}
  /// What to give the lane two away, and what to do with what it gave.
  LYCEUM_HOST_DEVICE void give_far(const std::uint32_t (&word)[4], std::uint32_t (&give)[2]) const {
    give[0] = upper ? word[0] : word[2];
    give[1] = upper ? word[1] : word[3];
  }
  LYCEUM_HOST_DEVICE void take_far(std::uint32_t (&word)[4], const std::uint32_t (&got)[2]) const {
    if (upper) {
      word[0] = got[0];
      word[1] = got[1];
    } else {
      word[2] = got[0];
      word[3] = got[1];
    }
  }
  LYCEUM_HOST_DEVICE void give_near(const std::uint32_t (&word)[4], std::uint32_t (&give)[2]) const {
    give[0] = odd ? word[0] : word[1];
    give[1] = odd ? word[2] : word[3];
  }
  LYCEUM_HOST_DEVICE void take_near(std::uint32_t (&word)[4], const std::uint32_t (&got)[2]) const {
    const std::uint32_t kept[2] = {odd ? word[1] : word[0], odd ? word[3] : word[2]};
    word[0] = odd ? got[0] : kept[0];
    word[1] = odd ? kept[0] : got[0];
    word[2] = odd ? got[1] : kept[1];
    word[3] = odd ? kept[1] : got[1];
  }
};

}  // namespace lyceum::grouped
