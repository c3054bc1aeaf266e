#pragma once

#include <cstdint>

#include "kernels/cuda/activation_formulas.h"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/warp_tiles.cuh"

// What a warpgroup does with the sums of its rows of a tile: results, with or without an activation, and gradients of
// weights.

namespace lyceum::grouped {

/// This thread's place in its warpgroup; without signs, which would cost instructions.
template <class Machine>
LYCEUM_DEVICE int place_in_group(const Machine& m) {
  return static_cast<int>(static_cast<unsigned>(m.thread()) % 128u);
}

/// Sums of the rows of a tile that a warpgroup computes.
template <class Tiling>
using TileSums = cuda::Accumulators<Tiling::blocks, Tiling::n>;

/// Writes eight elements of a row, as far as there are so many, in units of as many elements as are aligned.
template <class Machine>
LYCEUM_DEVICE void write_eight(const Machine& m, std::uint16_t* to, const Chunk& chunk, int left, int unit) {
  if (unit == 8 && left >= 8) return m.write(to, chunk);
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = chunk.word[i];
    if (unit > 1 && 2 * i + 1 < left) {
      m.write(to + 2 * i, word);
    } else {
      if (2 * i < left) m.write(to + 2 * i, static_cast<std::uint16_t>(word));
      if (2 * i + 1 < left) m.write(to + 2 * i + 1, static_cast<std::uint16_t>(word >> 16));
    }
  }
}

/// Elements that may be written at once in any row: 8, 2 or 1.
LYCEUM_DEVICE int unit_of(const Expert& expert) {
  const auto address = reinterpret_cast<std::uintptr_t>(expert.c);
  if (expert.c_stride % 8 == 0 && address % 16 == 0) return 8;
  return expert.c_stride % 2 == 0 && address % 4 == 0 ? 2 : 1;
}

LYCEUM_DEVICE std::uint16_t* activated_at(const Expert& expert, std::int32_t row, std::int32_t col) {
  return static_cast<std::uint16_t*>(expert.activated) + static_cast<std::int64_t>(row) * expert.n + col;
}

/// The sums that a thread has of a tile, rounded: pairs of neighbours, by rows, 32 columns, and eights of these. Half
/// as many registers as sums, which leaves some to finish the tile with.
template <class Tiling>
struct RoundedSums {
  static constexpr int rows = 2 * Tiling::blocks;
  std::uint32_t at[rows][Tiling::n / 32][4];

  template <class Machine>
  LYCEUM_DEVICE RoundedSums(const Machine& m, const TileSums<Tiling>& c) {
    LYCEUM_UNROLL
    for (int row = 0; row < rows; ++row) {
      LYCEUM_UNROLL
      for (int eight = 0; eight < Tiling::n / 8; ++eight) {
        const float* const pair = c.at[row / 2][eight] + row % 2 * 2;
        at[row][eight / 4][eight % 4] = m.pack(pair[0], pair[1]);
      }
    }
    m.compute_here(*this);
  }
  /// Row 0 becomes the next one: registers cannot be found by number, and so a loop over rows can stay one.
  LYCEUM_DEVICE void next() {
    LYCEUM_UNROLL
    for (int i = 0; i < (rows - 1) * Tiling::n / 8; ++i) {
      const int row = i / (Tiling::n / 8), eight = i % (Tiling::n / 8);
      at[row][eight / 4][eight % 4] = at[row + 1][eight / 4][eight % 4];
    }
  }
};

/// A row of a tile in a thread that finishes it: eight of each 32 columns, the first of them at `col`.
struct PartOfRow {
  int lane;  // in the quad that has the row
  std::int32_t row, col;

  /// Row number `index` of those that a thread has of a tile, which begins at (row0, col0).
  template <class Machine>
  LYCEUM_DEVICE static PartOfRow of(const Machine& m, int index, std::int32_t row0, std::int32_t col0) {
    const int thread = place_in_group(m), lane = thread % 4;
    return {lane, row0 + index / 2 * 64 + wgmma_row(thread, index % 2 * 2), col0 + lane * 8};
  }

  /// Eight of the 32 sums that the quad has of input `input` of columns 8 `eight` to 8 `eight` + 31 of the tile: its
  /// lanes put them in order together. Zeros where the row is not `filled`.
  template <class Tile, int chunks, class Machine>
  LYCEUM_DEVICE Chunk ordered(const Machine& m, const std::uint32_t (&sums)[chunks][4], int eight, int input,
                              bool filled) const {
    const QuadTranspose quad(lane);
    Chunk chunk;
    std::uint32_t give[2];
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int from = Tile::sums(eight + i, input);
      chunk.word[i] = filled ? sums[from / 4][from % 4] : 0u;
    }
    quad.give_far(chunk.word, give);
    const std::uint32_t far[2] = {m.from_lane_xor(give[0], 2), m.from_lane_xor(give[1], 2)};
    quad.take_far(chunk.word, far);
    quad.give_near(chunk.word, give);
    const std::uint32_t near[2] = {m.from_lane_xor(give[0], 1), m.from_lane_xor(give[1], 1)};
    quad.take_near(chunk.word, near);
    return chunk;
  }
};

/// A row of y.
template <class Tile, int chunks, class Machine>
LYCEUM_DEVICE void write_row(const Machine& m, const std::uint32_t (&sums)[chunks][4], const Expert& expert,
                             const PartOfRow& part) {
  const bool filled = part.row < expert.filled;
  const int unit = unit_of(expert);
  const std::int32_t left = part.row < expert.m ? expert.n - part.col : 0;
  auto* const y = static_cast<std::uint16_t*>(expert.c) + part.row * expert.c_stride + part.col;
  LYCEUM_UNROLL
  for (int eight = 0; eight < Tile::n / 8; eight += 4) {
    write_eight(m, y + 8 * eight, part.template ordered<Tile>(m, sums, eight, 0, filled), left - 8 * eight, unit);
  }
}

/// Where a warp writes its 16 rows of results: by `map`, from (row, col) on, by way of two boxes at `boxes`.
template <class TensorMap>
struct StoredRows {
  const TensorMap* map;
  int boxes;
  std::int32_t row, col;
};

/// Writes a warp's rows of y by stores of boxes, which leave out what is not inside of m x n. Rows are whole chunks.
template <class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void store_rows(const Machine& m, const TileSums<Tiling>& c, const Expert& expert,
                              const StoredRows<TensorMap>& to) {
  static_assert(Tiling::blocks == 1);
  if (to.row >= expert.m) return;
  const int lane = place_in_group(m) % 32;
  RoundedSums<Tiling> sums(m, c);
  LYCEUM_UNROLL
  for (int i = 0; i < 2 * Tiling::n / 8; ++i) {
    std::uint32_t& pair = sums.at[i % 2][i / 8][i / 2 % 4];
    if (to.row + wgmma_row(lane, i % 2 * 2) >= expert.filled) pair = 0;
  }
  LYCEUM_UNROLL
  for (int box = 0; box < Tiling::n / 64; ++box) {
    if (to.col + 64 * box >= expert.n) return;
    const int at = to.boxes + box % 2 * Tiling::result_box;
    box == 0 ? m.wait_bulk_reads() : m.template wait_bulk_reads<1>();
    m.sync_warp();  // one lane stores, and waits for its stores
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = i / 2 * 8 + lane % 8, chunk = i % 2 * 4 + lane / 8;
      m.store_matrices(at + static_cast<int>(tma_swizzle(row, chunk * 16)), sums.at[i / 2][2 * box + i % 2]);
    }
    m.publish_copies();
    m.sync_warp();
    if (lane == 0) m.begin_store_box(to.map, at, to.col + 64 * box, to.row);
  }
}

/// The activation's results for eight elements.
template <class Act, class Machine>
LYCEUM_DEVICE Chunk activated(const Machine& m, const Chunk (&x)[Act::inputs]) {
  Chunk y;
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    float low[Act::inputs], high[Act::inputs];
    LYCEUM_UNROLL
    for (int input = 0; input < Act::inputs; ++input) m.unpack(x[input].word[i], low[input], high[input]);
    y.word[i] = m.pack(Act::forward(low), Act::forward(high));
  }
  return y;
}

/// The same times the row's gate, the gradient of x, and what these elements add to that of the gate.
template <class Act, class Machine>
LYCEUM_DEVICE Chunk activated_again(const Machine& m, const Chunk (&x)[Act::inputs], const Chunk& dy, float gate,
                                    Chunk (&dx)[Act::inputs], float& d_gate) {
  Chunk y;
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    float low[Act::inputs], high[Act::inputs], d_low[Act::inputs], d_high[Act::inputs], dy_low, dy_high;
    LYCEUM_UNROLL
    for (int input = 0; input < Act::inputs; ++input) m.unpack(x[input].word[i], low[input], high[input]);
    m.unpack(dy.word[i], dy_low, dy_high);
    const float y_low = gated_backward<Act>(low, dy_low, gate, d_low, d_gate);
    const float y_high = gated_backward<Act>(high, dy_high, gate, d_high, d_gate);
    y.word[i] = m.pack(y_low, y_high);
    LYCEUM_UNROLL
    for (int input = 0; input < Act::inputs; ++input) dx[input].word[i] = m.pack(d_low[input], d_high[input]);
  }
  return y;
}

/// A row of what an activation takes and gives in a forward product. Rows are whole chunks.
template <class Act, class Tile, int chunks, class Machine>
LYCEUM_DEVICE void write_activated(const Machine& m, const std::uint32_t (&sums)[chunks][4], const Expert& expert,
                                   const PartOfRow& part) {
  const bool filled = part.row < expert.filled;
  const std::int32_t n = expert.n, left = part.row < expert.m ? n - part.col : 0;
  auto* const hidden = static_cast<std::uint16_t*>(expert.c) + part.row * expert.c_stride + part.col;
  auto* const y = activated_at(expert, part.row, part.col);
  LYCEUM_UNROLL
  for (int eight = 0; eight < Tile::n / 8; eight += 4) {
    Chunk x[Act::inputs];
    LYCEUM_UNROLL
    for (int i = 0; i < Act::inputs; ++i) x[i] = part.template ordered<Tile>(m, sums, eight, i, filled);
    if (8 * eight >= left) continue;
    LYCEUM_UNROLL
    for (int i = 0; i < Act::inputs; ++i) m.write(hidden + i * n + 8 * eight, x[i]);
    m.write(y + 8 * eight, activated<Act>(m, x));
  }
}

/// From a row of the gradient of an activation's results, in a dgrad: the gradient of what it took, and its results
/// again; with gates these times the gate, and the part of its gradient that is this tile's. All that a thread reads of
/// half a row is under way at once.
template <class Act, class Tile, int chunks, class Machine>
LYCEUM_DEVICE void write_activation_gradients(const Machine& m, const std::uint32_t (&sums)[chunks][4],
                                              const Expert& expert, const PartOfRow& part) {
  constexpr int inputs = Act::inputs, batch = chunks / 2;
  static_assert(chunks % batch == 0);
  const bool filled = part.row < expert.filled;
  const std::int32_t n = expert.n, left = part.row < expert.m ? n - part.col : 0;
  const std::int64_t place = part.row * expert.c_stride + part.col;
  const auto* const hidden = static_cast<const std::uint16_t*>(expert.hidden) + place;
  auto* const d_hidden = static_cast<std::uint16_t*>(expert.c) + place;
  auto* const y = activated_at(expert, part.row, part.col);
  const float gate = expert.gate && filled ? m.read_only(expert.gate + part.row) : 1.0f;
  float d_gate = 0;
  Chunk x[batch][inputs], dx[inputs];
  LYCEUM_UNROLL
  for (int chunk = 0; chunk < chunks; ++chunk) {
    LYCEUM_UNROLL
    for (int i = 0; chunk % batch == 0 && i < batch * inputs; ++i) {
      const int next = (chunk + i / inputs) * 32;
      const auto* const from = reinterpret_cast<const Chunk*>(hidden + i % inputs * n + next);
      x[i / inputs][i % inputs] = filled && next < left ? m.read_only(from) : Chunk();
    }
    const Chunk dy = part.template ordered<Tile>(m, sums, 4 * chunk, 0, filled);
    if (chunk * 32 >= left) continue;
    const Chunk again = activated_again<Act>(m, x[chunk % batch], dy, gate, dx, d_gate);
    LYCEUM_UNROLL
    for (int i = 0; i < inputs; ++i) m.write(d_hidden + i * n + chunk * 32, dx[i]);
    m.write(y + chunk * 32, again);
  }
  if (!expert.gate) return;
  d_gate += m.from_lane_xor(d_gate, 1);
  d_gate += m.from_lane_xor(d_gate, 2);
  const std::int32_t tile = (part.col - 8 * part.lane) / Tile::n;
  if (filled && part.lane == 0)
    m.write(expert.d_gate + static_cast<std::int64_t>(part.row) * expert.across + tile, d_gate);
}

/// Asks for what write_activation_gradients() will read, while the tensor cores are busy.
template <class Act, class Tile, int rows, class Machine>
LYCEUM_DEVICE void prefetch_hidden(const Machine& m, const Expert& expert, std::int32_t row0, std::int32_t col0) {
  constexpr int line = 64;  // of 128 bytes
  const int thread = place_in_group(m);
  LYCEUM_UNROLL
  for (int first = 0; first < rows; first += 64) {
    const std::int32_t row = row0 + first + thread / 2;
    if (row >= expert.filled) return;
    const auto* const hidden = static_cast<const std::uint16_t*>(expert.hidden) + row * expert.c_stride;
    LYCEUM_UNROLL
    for (int i = thread % 2; i < Act::inputs * Tile::n / line; i += 2) {
      const std::int32_t col = col0 + i / Act::inputs * line;
      if (col < expert.n) m.prefetch(hidden + i % Act::inputs * expert.n + col);
    }
  }
}

/// Two neighbours of a row of dw.
struct alignas(8) FloatPair {
  float first = 0, second = 0;
};

/// dw of 64 rows of a tile: adds in groups, so that many loads are under way at once.
template <class Tiling, class Machine>
LYCEUM_DEVICE void add_rows(const Machine& m, const float (&c)[Tiling::n / 8][4], const Expert& expert,
                            std::int32_t row0, std::int32_t col0) {
  constexpr int group = 8;
  const int thread = place_in_group(m);
  const bool pairs = expert.c_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(expert.c) % 8 == 0;
  LYCEUM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = row0 + wgmma_row(thread, 2 * half);
    float* const dw = static_cast<float*>(expert.c) + row * expert.c_stride;
    const std::int32_t end = row < expert.m ? expert.n : 0;
    LYCEUM_UNROLL
    for (int block = 0; block < Tiling::n / 8; block += group) {
      FloatPair old[group];
      LYCEUM_UNROLL
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        if (pairs && col + 1 < end) {
          old[i] = m.template read<FloatPair>(dw + col);
        } else {
          old[i] = {col < end ? dw[col] : 0.0f, col + 1 < end ? dw[col + 1] : 0.0f};
        }
      }
      LYCEUM_UNROLL
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        const float* const pair = c[block + i] + 2 * half;
        const FloatPair sum{old[i].first + pair[0], old[i].second + pair[1]};
        if (pairs && col + 1 < end) {
          m.write(dw + col, sum);
        } else {
          if (col < end) dw[col] = sum.first;
          if (col + 1 < end) dw[col + 1] = sum.second;
        }
      }
    }
  }
}

/// Asks for the gradients that add_rows() will read, while the tensor cores are busy.
template <class Tiling, class Machine>
LYCEUM_DEVICE void prefetch_rows(const Machine& m, const Expert& expert, std::int32_t row0, std::int32_t col0) {
  const int thread = place_in_group(m);
  const std::int32_t row = row0 + thread / 2;
  if (row >= expert.m) return;
  const float* const dw = static_cast<const float*>(expert.c) + row * expert.c_stride;
  LYCEUM_UNROLL
  for (int i = 0; i < Tiling::n; i += 64) {
    const std::int32_t col = col0 + i + thread % 2 * 32;
    if (col < expert.n) m.prefetch(dw + col);
  }
}

}  // namespace lyceum::grouped
