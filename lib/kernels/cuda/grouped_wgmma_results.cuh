#pragma once

#include <cstdint>

#include "kernels/cuda/activation_formulas.h"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/warp_tiles.cuh"

// Epilogue of the wgmma kernels: how a warpgroup writes the sums of its rows of a tile, as results with or without an
// activation, or added to the gradient of a weight.

namespace lyceum::grouped {

/// Index of this thread in its warpgroup, 0 to 127. Computed unsigned, which takes fewer instructions.
template <class Machine>
LYCEUM_DEVICE int thread_in_group(const Machine& m) {
  return static_cast<int>(static_cast<unsigned>(m.thread()) % 128u);
}

/// The accumulators of the rows of a tile that a warpgroup computes.
template <class Tiling>
using TileSums = cuda::Accumulators<Tiling::blocks, Tiling::n>;

/// Writes the first min(left, 8) elements of a chunk, none if left ≤ 0. Stores are `unit` elements (8, 2 or 1) wide;
/// `to` must be aligned to that width.
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

/// Returns the width, in elements, of the widest aligned stores to c: 8, 2 or 1. A store of that width may begin at any
/// multiple of it in any row.
LYCEUM_DEVICE int unit_of(const Expert& expert) {
  const auto address = reinterpret_cast<std::uintptr_t>(expert.c);
  if (expert.c_stride % 8 == 0 && address % 16 == 0) return 8;
  return expert.c_stride % 2 == 0 && address % 4 == 0 ? 2 : 1;
}

/// Address of an element of the activation's output.
LYCEUM_DEVICE std::uint16_t* activated_at(const Expert& expert, std::int32_t row, std::int32_t col) {
  return static_cast<std::uint16_t*>(expert.activated) + static_cast<std::int64_t>(row) * expert.n + col;
}

/// A thread's sums of a tile, rounded to bf16. Each word is a pair of neighbours; [row][n][i] is in group of eight
/// columns 4 n + i. They take half as many registers as the sums, which leaves registers for the epilogue.
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
  /// Shifts all rows down by one, so that the next row is row 0. Registers cannot be indexed by a variable, so this
  /// allows a loop over rows that is not unrolled.
  LYCEUM_DEVICE void next() {
    LYCEUM_UNROLL
    for (int i = 0; i < (rows - 1) * Tiling::n / 8; ++i) {
      const int row = i / (Tiling::n / 8), eight = i % (Tiling::n / 8);
      at[row][eight / 4][eight % 4] = at[row + 1][eight / 4][eight % 4];
    }
  }
};

/// The part of a row that one thread of a quad finishes: eight columns of every 32, the first of them `col`.
struct PartOfRow {
  int lane;  // index in the quad that holds the row, 0 to 3
  std::int32_t row, col;

  /// Returns the part for row number `index` of a thread's rows. The warpgroup's rows of the tile begin at (row0,
  /// col0).
  template <class Machine>
  LYCEUM_DEVICE static PartOfRow of(const Machine& m, int index, std::int32_t row0, std::int32_t col0) {
    const int thread = thread_in_group(m), lane = thread % 4;
    return {lane, row0 + index / 2 * 64 + wgmma_row(thread, index % 2 * 2), col0 + lane * 8};
  }

  /// Returns eight consecutive sums of input `input` from the tile's columns 8 · eight to 8 · eight + 31, of which each
  /// lane of the quad gets eight. All lanes of the warp must call it, since they exchange words. Returns zeros if not
  /// `filled`.
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

/// Writes this thread's part of a row of y; zeros in rows from expert.filled on. `sums` is the row in RoundedSums. All
/// lanes of the warp must call it, since they exchange words.
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

/// Destination of a warp's 16 rows of results: position (row, col) in tensor map `map`, staged in two boxes at
/// shared-memory offset `boxes`.
template <class TensorMap>
struct StoredRows {
  const TensorMap* map;
  int boxes;
  std::int32_t row, col;
};

/// Begins to write a warp's rows of y with TMA stores, which skip elements outside m x n. All lanes of the warp call
/// it, and must call wait_bulk() before the block ends. Rows of c must consist of whole 16-byte chunks. The two boxes
/// are used in turns: before a box is overwritten, the store that read it before has finished reading.
template <class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void store_rows(const Machine& m, const TileSums<Tiling>& c, const Expert& expert,
                              const StoredRows<TensorMap>& to) {
  static_assert(Tiling::blocks == 1);
  if (to.row >= expert.m) return;
  const int lane = thread_in_group(m) % 32;
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
    m.sync_warp();  // lane 0 issues and awaits the stores for the whole warp
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

/// The function of an activation of a bank's rows, and the biases of eight of its columns.
template <class Act>
struct BiasedFunction {
  Act act;
  bool biased;  // false: `bias` is not used
  Chunk bias[Act::inputs];

  /// `biases`: those of the columns of the first input, null if there are none; those of the second are `n` elements
  /// further.
  template <class Machine>
  LYCEUM_DEVICE BiasedFunction(const Machine& m, const Act& act, const std::uint16_t* biases, std::int32_t n)
      : act(act), biased(biases) {
    if (!biased) return;
    LYCEUM_UNROLL
    for (int input = 0; input < Act::inputs; ++input) {
      bias[input] = m.read_only(reinterpret_cast<const Chunk*>(biases + input * n));
    }
  }
  /// Unpacks two neighbours, word i of each input, and adds their biases.
  template <class Machine>
  LYCEUM_DEVICE void unpack(const Machine& m, const Chunk (&x)[Act::inputs], int i, float (&low)[Act::inputs],
                            float (&high)[Act::inputs]) const {
    LYCEUM_UNROLL
    for (int input = 0; input < Act::inputs; ++input) {
      m.unpack(x[input].word[i], low[input], high[input]);
      if (!biased) continue;
      float bias_low, bias_high;
      m.unpack(bias[input].word[i], bias_low, bias_high);
      low[input] += bias_low;
      high[input] += bias_high;
    }
  }
};

/// Returns the biases of the columns from `col` on of an expert's rows; null if there are none, as in rows that are not
/// `filled`. Read it before results are written: the compiler would read the expert's members again after each store.
LYCEUM_DEVICE const std::uint16_t* biases_of(const Expert& expert, std::int32_t col, bool filled) {
  return expert.bias && filled ? static_cast<const std::uint16_t*>(expert.bias) + col : nullptr;
}

/// Returns the activation's results for eight elements.
template <class Act, class Machine>
LYCEUM_DEVICE Chunk activated(const Machine& m, const BiasedFunction<Act>& function, const Chunk (&x)[Act::inputs]) {
  Chunk y;
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    float low[Act::inputs], high[Act::inputs];
    function.unpack(m, x, i, low, high);
    y.word[i] = m.pack(function.act.forward(low), function.act.forward(high));
  }
  return y;
}

/// Returns the activation's results for eight elements, times the row's gate. Writes the gradient of the inputs to dx
/// and adds these elements' part of the gate's gradient to d_gate.
template <class Act, class Machine>
LYCEUM_DEVICE Chunk activated_again(const Machine& m, const BiasedFunction<Act>& function,
                                    const Chunk (&x)[Act::inputs], const Chunk& dy, float gate,
                                    Chunk (&dx)[Act::inputs], float& d_gate) {
  Chunk y;
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    float low[Act::inputs], high[Act::inputs], d_low[Act::inputs], d_high[Act::inputs], dy_low, dy_high;
    function.unpack(m, x, i, low, high);
    m.unpack(dy.word[i], dy_low, dy_high);
    const float y_low = gated_backward(function.act, low, dy_low, gate, d_low, d_gate);
    const float y_high = gated_backward(function.act, high, dy_high, gate, d_high, d_gate);
    y.word[i] = m.pack(y_low, y_high);
    LYCEUM_UNROLL
    for (int input = 0; input < Act::inputs; ++input) dx[input].word[i] = m.pack(d_low[input], d_high[input]);
  }
  return y;
}

/// Forward product: writes this thread's part of a row of the activation's inputs and results; inputs are zero in rows
/// from expert.filled on. Rows must consist of whole 16-byte chunks. All lanes of the warp must call it.
template <class Act, class Tile, int chunks, class Machine>
LYCEUM_DEVICE void write_activated(const Machine& m, const std::uint32_t (&sums)[chunks][4], const Expert& expert,
                                   const PartOfRow& part) {
  const bool filled = part.row < expert.filled;
  const std::int32_t n = expert.n, left = part.row < expert.m ? n - part.col : 0;
  auto* const hidden = static_cast<std::uint16_t*>(expert.c) + part.row * expert.c_stride + part.col;
  auto* const y = activated_at(expert, part.row, part.col);
  const Act act(expert.function);
  const std::uint16_t* const biases = biases_of(expert, part.col, filled);
  LYCEUM_UNROLL
  for (int eight = 0; eight < Tile::n / 8; eight += 4) {
    Chunk x[Act::inputs];
    LYCEUM_UNROLL
    for (int i = 0; i < Act::inputs; ++i) x[i] = part.template ordered<Tile>(m, sums, eight, i, filled);
    if (8 * eight >= left) continue;
    LYCEUM_UNROLL
    for (int i = 0; i < Act::inputs; ++i) m.write(hidden + i * n + 8 * eight, x[i]);
    const BiasedFunction<Act> function(m, act, biases ? biases + 8 * eight : nullptr, n);
    m.write(y + 8 * eight, activated(m, function, x));
  }
}

/// dgrad with an activation: writes this thread's part of a row of the gradient of the activation's inputs and of the
/// recomputed results; zeros in rows from expert.filled on. `sums` is the row of the gradient of the results, in
/// RoundedSums. With gates, the results are multiplied by the row's gate, and this tile's part of the gate's gradient
/// is written to expert.d_gate. Rows must consist of whole 16-byte chunks. All lanes of the warp must call it. The
/// loads of half a row are issued together, to overlap their latency.
template <class Act, class Tile, int chunks, class Machine>
LYCEUM_DEVICE void write_activation_gradients(const Machine& m, const std::uint32_t (&sums)[chunks][4],
                                              const Expert& expert, const PartOfRow& part) {
  constexpr int inputs = Act::inputs, batch = chunks / 2;
  static_assert(chunks % batch == 0);
  const bool filled = part.row < expert.filled;
  const std::int32_t n = expert.n, left = part.row < expert.m ? n - part.col : 0;
  const std::int64_t offset = part.row * expert.c_stride + part.col;
  const auto* const hidden = static_cast<const std::uint16_t*>(expert.hidden) + offset;
  auto* const d_hidden = static_cast<std::uint16_t*>(expert.c) + offset;
  auto* const y = activated_at(expert, part.row, part.col);
  const float gate = expert.gate && filled ? m.read_only(expert.gate + part.row) : 1.0f;
  const Act act(expert.function);
  const std::uint16_t* const biases = biases_of(expert, part.col, filled);
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
    const BiasedFunction<Act> function(m, act, biases ? biases + chunk * 32 : nullptr, n);
    const Chunk again = activated_again(m, function, x[chunk % batch], dy, gate, dx, d_gate);
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

/// Prefetches to L2 what write_activation_gradients() will read, while the tensor cores are busy.
template <class Act, class Tile, int rows, class Machine>
LYCEUM_DEVICE void prefetch_hidden(const Machine& m, const Expert& expert, std::int32_t row0, std::int32_t col0) {
  const int thread = thread_in_group(m);
  LYCEUM_UNROLL
  for (int first = 0; first < rows; first += 64) {
    const std::int32_t row = row0 + first + thread / 2;
    if (row >= expert.filled) return;
    const auto* const hidden = static_cast<const std::uint16_t*>(expert.hidden) + row * expert.c_stride;
    LYCEUM_UNROLL
    for (int i = thread % 2; i < Act::inputs * Tile::n / cache_line; i += 2) {
      const std::int32_t col = col0 + i / Act::inputs * cache_line;
      if (col < expert.n) m.prefetch(hidden + i % Act::inputs * expert.n + col);
    }
  }
}

/// Two neighbouring elements of a row of dw.
struct alignas(8) FloatPair {
  float first = 0, second = 0;
};

/// Adds the sums of 64 rows of a tile to dw, or to zeros without expert.accumulate, in groups of `group` pairs whose
/// loads are issued together, to overlap their latency. `whole`: all rows and columns are inside the matrix, and pairs
/// are aligned.
template <class Tiling, int group, bool whole, class Machine>
LYCEUM_DEVICE void add_rows(const Machine& m, const float (&c)[Tiling::n / 8][4], const Expert& expert,
                            std::int32_t row0, std::int32_t col0, bool pairs) {
  const int thread = thread_in_group(m);
  const bool adds = expert.accumulate;
  LYCEUM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = row0 + wgmma_row(thread, 2 * half);
    float* const dw = static_cast<float*>(expert.c) + row * expert.c_stride;
    const std::int32_t end = row < expert.m ? expert.n : 0;
    const std::int32_t read_end = adds ? end : 0;
    LYCEUM_UNROLL
    for (int block = 0; block < Tiling::n / 8; block += group) {
      FloatPair old[group];
      if (!whole || adds) {
        LYCEUM_UNROLL
        for (int i = 0; i < group; ++i) {
          const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
          if (whole || (pairs && col + 1 < read_end)) {
            old[i] = m.template read<FloatPair>(dw + col);
          } else {
            old[i] = {col < read_end ? dw[col] : 0.0f, col + 1 < read_end ? dw[col + 1] : 0.0f};
          }
        }
      }
      LYCEUM_UNROLL
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        const float* const pair = c[block + i] + 2 * half;
        const FloatPair sum{old[i].first + pair[0], old[i].second + pair[1]};
        if (whole || (pairs && col + 1 < end)) {
          m.write(dw + col, sum);
        } else {
          if (col < end) dw[col] = sum.first;
          if (col + 1 < end) dw[col + 1] = sum.second;
        }
      }
    }
  }
}

/// Adds a warpgroup's rows of a tile to dw, or writes them, see add_rows(). Branches between loads would keep them from
/// being issued together, so tiles inside the matrix have code without them, or one around the loads of a group.
template <class Tiling, class Machine>
LYCEUM_DEVICE void add_tile(const Machine& m, const TileSums<Tiling>& c, const Expert& expert, std::int32_t row0,
                            std::int32_t col0) {
  constexpr int group = 8 / Tiling::blocks;  // as many as fit into the registers
  const bool pairs = expert.c_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(expert.c) % 8 == 0;
  LYCEUM_UNROLL
  for (int block = 0; block < Tiling::blocks; ++block) {
    const std::int32_t row = row0 + 64 * block;
    if (pairs && row + 64 <= expert.m && col0 + Tiling::n <= expert.n) {
      add_rows<Tiling, 8, true>(m, c.at[block], expert, row, col0, true);
    } else {
      add_rows<Tiling, group, false>(m, c.at[block], expert, row, col0, pairs);
    }
  }
}

/// Prefetches to L2 the elements of dw that add_tile() will read, while the tensor cores are busy.
template <class Tiling, class Machine>
LYCEUM_DEVICE void prefetch_rows(const Machine& m, const Expert& expert, std::int32_t row0, std::int32_t col0) {
  const int thread = thread_in_group(m);
  LYCEUM_UNROLL
  for (int first = 0; first < 64 * Tiling::blocks; first += 64) {
    const std::int32_t row = row0 + first + thread / 2;
    if (row >= expert.m) return;
    const float* const dw = static_cast<const float*>(expert.c) + row * expert.c_stride;
    LYCEUM_UNROLL
    for (int i = 0; i < Tiling::n; i += 64) {
      const std::int32_t col = col0 + i + thread % 2 * 32;
      if (col < expert.n) m.prefetch(dw + col);
    }
  }
}

}  // namespace lyceum::grouped
