#pragma once

#include <cstdint>

#include "core/round_up.h"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/warpgroup.cuh"

namespace lyceum::grouped {

/// A block's tile of c is 128 x N; one warpgroup loads, 64 of k a stage, and two multiply.
/// Cooperative: 64 rows of every tile each. Ping-pong: a whole tile each in turns, so that one writes its results while
/// the other keeps the tensor cores busy; that pays where k is short, but needs smaller tiles.
template <int N, bool PingPong>
struct WgmmaTiling {
  static_assert(N % 64 == 0 && N <= 256);
  static constexpr bool ping_pong = PingPong;
  static constexpr int m = 128, n = N, k = 64, threads = 384;
  /// Columns that are computed where no more of a tile are inside. Where b does not lie along k its layout is one of
  /// blocks of 64 columns.
  static constexpr int narrow(bool b_along_k) { return b_along_k ? n / 2 : round_up(n / 2, 64); }
  static constexpr int blocks = PingPong ? 2 : 1;          // of 64 rows, that a warpgroup computes
  static constexpr int arrivals = (PingPong ? 1 : 2) * 4;  // warps that give a stage back
  static constexpr int a_bytes = m * k * 2, b_bytes = n * k * 2, stage_bytes = a_bytes + b_bytes;
  static constexpr int stages = (220 * 1024) / stage_bytes;
  static constexpr int barriers = 2 * stages + 2;
  static constexpr int cluster = 1;        // blocks that load b together
  static constexpr int result_bytes = 0;   // of shared memory, by way of which results are written
  static_assert(stage_bytes % 1024 == 0);  // which the hardware's swizzle is relative to
  static constexpr int shared_bytes = stages * stage_bytes + barriers * 8;
};
using CooperativeTiling = WgmmaTiling<256, false>;
using PingPongTiling = WgmmaTiling<192, true>;

/// Cooperative; two blocks are a cluster with tiles below each other, and each loads half of b for both. Results of
/// rows are written by way of shared memory: boxes of 16 rows and 64 columns, two for each warp, by turns.
struct ClusteredTiling : CooperativeTiling {
  static constexpr int cluster = 2;
  static constexpr int arrivals = cluster * CooperativeTiling::arrivals;  // of warps of both blocks
  static constexpr int result_lines = 16, result_box = result_lines * 128, result_bytes = 8 * 2 * result_box;
  static constexpr int shared_bytes = CooperativeTiling::shared_bytes + result_bytes;
};

/// Results are the product's sums.
struct NoActivation {
  static constexpr int inputs = 1;
};

/// What a tile of `Tiling` is of one expert's results: `m` rows, those of a cluster's blocks, and `n` columns. `Act`:
/// NoActivation, Swiglu or Gelu.
///
/// In a forward product with gates and ups, those of `n` columns share the tile's N sums of each row: the first quarter
/// are gates, the second the ups to these, the third and the fourth those of the columns that follow. So one thread has
/// both of a column, and half of the sums are whole columns, for narrow tiles.
template <Product product, class Act, class Tiling>
struct TileOf {
  static constexpr bool gated = product == Product::forward && Act::inputs == 2;
  static constexpr int cluster = Tiling::cluster, block_m = Tiling::m;
  static constexpr int m = cluster * block_m, n = gated ? Tiling::n / 2 : Tiling::n;
  /// Sums that are computed where no more of a tile are inside, and the columns that they are.
  static constexpr int narrow_sums = Tiling::narrow(b_along_k(product)), narrow = gated ? narrow_sums / 2 : narrow_sums;
  static_assert(!gated || narrow_sums == Tiling::n / 2);
  /// Lines that are loaded together, and how many such boxes of b a stage has.
  static constexpr int a_lines = a_along_k(product) ? Tiling::m : 64;
  static constexpr int b_lines = gated ? Tiling::n / 4 : b_along_k(product) ? Tiling::n / cluster : 64;
  static constexpr int b_boxes = Tiling::n / b_lines;
  static_assert(b_boxes % cluster == 0);

  /// Which eight sums of a row are input `input` of columns 8 `eight` to 8 `eight` + 7.
  static constexpr LYCEUM_HOST_DEVICE int sums(int eight, int input) {
    constexpr int quarter = Tiling::n / 32;
    return gated ? eight / quarter * 2 * quarter + input * quarter + eight % quarter : eight;
  }
};

/// The stage that comes next, and the parity of its barriers' phase: that in which it is filled. Who fills it waits for
/// the end of the empty barrier's phase before, of the other parity.
template <int Stages>
struct Turn {
  int stage = 0;
  std::uint32_t parity = 0;

  LYCEUM_HOST_DEVICE void next() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  /// As next() so many times.
  LYCEUM_HOST_DEVICE void skip(int count) {
    stage += count;
    parity ^= stage / Stages & 1;
    stage %= Stages;
  }
};

/// Ping-pong: warpgroup `group` (0, 1) may look at the stages of its tile number `index` (0, 1, …) when this phase of
/// its order barrier has ended: when the other one has seen all stages of the tile before. (A barrier shows only the
/// parity of its phase, so that nobody may wait for a phase beyond the next.)
LYCEUM_HOST_DEVICE std::uint32_t order_parity(int group, int index) {
  return static_cast<std::uint32_t>(group == 0 ? index + 1 : index) & 1u;
}

/// Where CU_TENSOR_MAP_SWIZZLE_128B puts byte `byte` of line `line` of a box of lines of 128 bytes.
LYCEUM_HOST_DEVICE std::uint32_t tma_swizzle(std::uint32_t line, std::uint32_t byte) {
  return line * 128 + (byte ^ (line % 8 * 16));
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
    return cuda::MatrixDescriptor::of(address, leading, stride);
  }
};

/// How 128 threads copy a stage of an operand whose lines are anywhere in memory, 16 bytes at a time, to where TMA
/// would have put it: `Extent` indices of m or n by 64 of k. Eight threads copy a line's 128 bytes, and each thread the
/// same place of all its lines.
template <bool AlongK, int Extent>
struct PickedCopies {
  static constexpr int lines = AlongK ? Extent : 64, boxes = AlongK ? 1 : Extent / 64;
  static constexpr int count = lines / 16;  // lines of a box that a thread copies

  LYCEUM_HOST_DEVICE static int line(int thread, int i) { return thread / 8 + 16 * i; }
  /// First of the eight elements along memory.
  LYCEUM_HOST_DEVICE static int element(int thread, int box) { return box * 64 + thread % 8 * 8; }
  LYCEUM_HOST_DEVICE static std::uint32_t offset(int thread, int i, int box) {
    return static_cast<std::uint32_t>(box) * (64 * 128) +
           tma_swizzle(static_cast<std::uint32_t>(line(thread, i)), static_cast<std::uint32_t>(thread % 8 * 16));
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
