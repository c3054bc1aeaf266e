#pragma once

#include <cstdint>

#include "core/round_up.h"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/warpgroup.cuh"

namespace lyceum::grouped {

/// Number of bf16 elements in a cache line (128 bytes).
inline constexpr int cache_line = 64;

/// Tile extents of the wgmma kernels. A block computes a tile of c of 128 x N in stages of 64 along k. One warpgroup
/// loads and two multiply.
/// - Cooperative: each multiplying warpgroup computes 64 rows of every tile.
/// - Ping-pong: the two compute whole tiles in turns, so that one writes its results while the other keeps the tensor
///   cores busy. That is faster for small k, but needs smaller tiles.
template <int N, bool PingPong>
struct WgmmaTiling {
  static_assert(N % 64 == 0 && N <= 256);
  static constexpr bool ping_pong = PingPong;
  static constexpr int m = 128, n = N, k = 64, threads = 384;
  /// Number of columns to compute for a tile at the edge of the matrix, if it has no more columns than this inside the
  /// matrix; otherwise all N are computed. If b is not stored along k, its layout consists of blocks of 64 columns.
  static constexpr int narrow(bool b_along_k) { return b_along_k ? n / 2 : round_up(n / 2, 64); }
  static constexpr int blocks = PingPong ? 2 : 1;          // blocks of 64 rows per warpgroup
  static constexpr int arrivals = (PingPong ? 1 : 2) * 4;  // warps that arrive at an empty barrier
  static constexpr int a_bytes = m * k * 2, b_bytes = n * k * 2, stage_bytes = a_bytes + b_bytes;
  static constexpr int stages = (220 * 1024) / stage_bytes;
  static constexpr int barriers = 2 * stages + 2;
  static constexpr int cluster = 1;        // blocks that load b together
  static constexpr int result_bytes = 0;   // shared memory for results; 0: threads write them directly
  static_assert(stage_bytes % 1024 == 0);  // the hardware's swizzle is relative to multiples of 1024 bytes
  static constexpr int shared_bytes = stages * stage_bytes + barriers * 8;
};
using CooperativeTiling = WgmmaTiling<256, false>;
using PingPongTiling = WgmmaTiling<192, true>;

/// Cooperative tiles in clusters of two blocks. Their tiles are adjacent along m, and each block loads half of b for
/// both. Results are written to shared memory and stored by TMA in boxes of 16 rows and 64 columns; each warp
/// alternates between two boxes.
struct ClusteredTiling : CooperativeTiling {
  static constexpr int cluster = 2;
  static constexpr int arrivals = cluster * CooperativeTiling::arrivals;  // warps of both blocks
  static constexpr int result_lines = 16, result_box = result_lines * 128, result_bytes = 8 * 2 * result_box;
  static constexpr int shared_bytes = CooperativeTiling::shared_bytes + result_bytes;
};

/// Ping-pong tiles in clusters of two blocks, as ClusteredTiling. Threads write the results directly.
struct ClusteredPingPongTiling : PingPongTiling {
  static constexpr int cluster = 2;
  static constexpr int arrivals = cluster * PingPongTiling::arrivals;
};

/// The results are the product's sums, without an activation.
struct NoActivation {
  static constexpr int inputs = 1;
};

/// The part of one expert's results that a tile of `Tiling` covers: `m` rows (of all blocks of a cluster) and `n`
/// columns. `Act` is NoActivation, Swiglu or Gelu.
///
/// In a forward product with gates and ups, a tile's N sums per row cover N / 2 columns of the activation. The first
/// quarter are gates, the second the ups of the same columns, the third and fourth those of the following columns. So
/// one thread has both inputs of a column, and half of the sums are whole columns, which narrow tiles need.
template <Product product, class Act, class Tiling>
struct TileOf {
  static constexpr bool gated = product == Product::forward && Act::inputs == 2;
  static constexpr int cluster = Tiling::cluster, block_m = Tiling::m;
  static constexpr int m = cluster * block_m, n = gated ? Tiling::n / 2 : Tiling::n;
  /// Number of sums per row to compute for a tile at the edge of the matrix (WgmmaTiling::narrow), and the number of
  /// columns of results that they give.
  static constexpr int narrow_sums = Tiling::narrow(b_along_k(product)), narrow = gated ? narrow_sums / 2 : narrow_sums;
  static_assert(!gated || narrow_sums == Tiling::n / 2);
  /// Lines per box, and the number of boxes of b per stage. If b is not stored along k, a box is 64 columns of all of
  /// k, or of a part of k if the blocks of a cluster could not load equally many boxes otherwise.
  static constexpr int a_lines = a_along_k(product) ? Tiling::m : 64;
  static constexpr int b_parts = b_along_k(product) || Tiling::n / 64 % cluster == 0 ? 1 : cluster;
  static constexpr int b_lines = gated ? Tiling::n / 4 : b_along_k(product) ? Tiling::n / cluster : 64 / b_parts;
  static constexpr int b_boxes = Tiling::n / (b_along_k(product) ? b_lines : 64) * b_parts;
  static_assert(b_boxes % cluster == 0);

  /// Index of the group of eight sums of a row that contains input `input` of columns 8 · eight to 8 · eight + 7.
  static constexpr LYCEUM_HOST_DEVICE int sums(int eight, int input) {
    constexpr int quarter = Tiling::n / 32;
    return gated ? eight / quarter * 2 * quarter + input * quarter + eight % quarter : eight;
  }
};

/// The next stage of the ring, and the parity of its barriers' phase in which it is filled. The loader waits for the
/// end of the preceding phase of the empty barrier, which has the other parity.
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
  /// Equivalent to `count` calls of next().
  LYCEUM_HOST_DEVICE void skip(int count) {
    stage += count;
    parity ^= stage / Stages & 1;
    stage %= Stages;
  }
};

/// Returns the phase parity of order(group) that warpgroup `group` (0 or 1) waits for before it reads the stages of its
/// tile number `index`. That phase ends when the other warpgroup has seen all stages of the tile before. (A barrier
/// shows only the parity of its phase, so a thread must not wait for a phase beyond the next.)
LYCEUM_HOST_DEVICE std::uint32_t order_parity(int group, int index) {
  return static_cast<std::uint32_t>(group == 0 ? index + 1 : index) & 1u;
}

/// Byte offset at which CU_TENSOR_MAP_SWIZZLE_128B stores byte `byte` of line `line` of a box with lines of 128 bytes.
LYCEUM_HOST_DEVICE std::uint32_t tma_swizzle(std::uint32_t line, std::uint32_t byte) {
  return line * 128 + (byte ^ (line % 8 * 16));
}

/// Layout of an operand's stage in shared memory, as TMA boxes of 128-byte lines. Along k: a line is one index of m or
/// n with 64 of k; boxes follow each other along m or n, so that the whole stage is one sequence of lines. Otherwise a
/// line is one k with 64 indices of m or n, and a box has 64 lines.
template <bool AlongK>
struct WgmmaOperand {
  /// Bytes between groups of 8 lines.
  static constexpr std::uint32_t stride = 8 * 128;
  /// Bytes between groups of 64 indices of m or n. The hardware ignores it along k.
  static constexpr std::uint32_t leading = AlongK ? 16 : 64 * 128;
  /// Bytes between groups of 16 of k.
  static constexpr std::uint32_t k_step = AlongK ? 32 : 16 * 128;

  /// Returns the wgmma descriptor of 16 of k, from k = 16 · step on, for the rows or columns from `begin` on, a
  /// multiple of 64.
  LYCEUM_HOST_DEVICE static std::uint64_t descriptor(std::uint32_t stage_address, int begin, int step) {
    const std::uint32_t address = stage_address + begin / 64 * (64 * 128) + step * k_step;
    return cuda::MatrixDescriptor::of(address, leading, stride);
  }
};

/// The mapping by which 128 threads copy a stage of a picked operand to the positions that TMA would have used, 16
/// bytes at a time. The stage is `Extent` indices of m or n times 64 of k. Eight threads copy one line of 128 bytes; a
/// thread copies the same chunk of each of its lines.
template <bool AlongK, int Extent>
struct PickedCopies {
  static constexpr int lines = AlongK ? Extent : 64, boxes = AlongK ? 1 : Extent / 64;
  static constexpr int count = lines / 16;  // lines per box and thread

  /// Line, within its box, of the i-th copy of thread `thread`; i < count.
  LYCEUM_HOST_DEVICE static int line(int thread, int i) { return thread / 8 + 16 * i; }
  /// First of the eight elements that the thread copies of a line, relative to the element of the line where the stage
  /// begins.
  LYCEUM_HOST_DEVICE static int element(int thread, int box) { return box * 64 + thread % 8 * 8; }
  /// Byte offset, within the stage, to which the thread copies its i-th chunk of a box.
  LYCEUM_HOST_DEVICE static std::uint32_t offset(int thread, int i, int box) {
    return static_cast<std::uint32_t>(box) * (64 * 128) +
           tma_swizzle(static_cast<std::uint32_t>(line(thread, i)), static_cast<std::uint32_t>(thread % 8 * 16));
  }
};

/// Row (of 64) and column of accumulator `i` of thread `thread` (of 128) of a warpgroup. [PTX ISA, wgmma D fragment]
LYCEUM_HOST_DEVICE int wgmma_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
LYCEUM_HOST_DEVICE int wgmma_col(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

/// Transposes the 4 x 4 words that four neighbouring lanes (a quad) hold, so that each lane gets 16 contiguous bytes of
/// a row: word[b] of lane q becomes word[q] of lane b. There are two exchanges: first with the lane two away, then with
/// the neighbour.
struct QuadTranspose {
  bool upper, odd;  // lane q of the quad is 2 · upper + odd

  LYCEUM_HOST_DEVICE explicit QuadTranspose(int lane) : upper(lane & 2), odd(lane & 1) {}
  /// give_far() selects the words for the lane two away, take_far() stores the words received from it. give_near() and
  /// take_near() do the same for the neighbour.
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
