#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/tensor_core.cuh"

namespace lyceum::cuda {

// Operations of warps on tiles of bfloat16 in shared memory. `Machine` is the block of threads that the code runs on:
// Machine of machine.cuh on a GPU, an emulated one in tests. A tile is identified by the byte offset of its first
// element in shared memory.

/// Eight 16-bit elements, which are copied together.
struct alignas(16) EightElements {
  std::uint16_t bits[8];
};

/// Part of a matrix in global memory: the `rows` x `cols` elements from `first` on. `aligned`: all rows begin at
/// multiples of 16 bytes and consist of whole 16-byte chunks.
template <class T>
struct Panel {
  T* first;
  std::int64_t stride;
  int rows, cols;
  bool aligned;
};

/// load_tile() if each thread copies the same chunk of every row, which needs the fewest instructions.
template <class Tile, int rows, int threads, class Machine>
LYCEUM_DEVICE void load_tile_by_columns(const Machine& m, int tile, const Panel<const bfloat16>& from) {
  static_assert(threads % Tile::chunks == 0);
  constexpr int step = threads / Tile::chunks;
  const int chunk = m.thread() % Tile::chunks, first = m.thread() / Tile::chunks;
  const bfloat16* at = from.first + first * from.stride + chunk * 8;
  const int cols = from.cols - chunk * 8, last = from.rows < rows ? from.rows : rows;
  if (from.aligned) {
    LYCEUM_NO_UNROLL
    for (int row = first; row < rows; row += step, at += step * from.stride) {
      m.copy_16(tile + Tile::offset(row, chunk), at, cols > 0 && row < last);
    }
    return;
  }
  LYCEUM_NO_UNROLL
  for (int row = first; row < rows; row += step, at += step * from.stride) {
    EightElements values{};
    for (int i = 0; i < 8; ++i) {
      if (i < cols && row < last) values.bits[i] = at[i].bits;
    }
    *m.template shared<EightElements>(tile + Tile::offset(row, chunk)) = values;
  }
}

/// load_tile() if the number of chunks per row does not divide the number of threads: threads take the chunks of the
/// tile in order, row by row.
template <class Tile, int rows, int threads, class Machine>
LYCEUM_DEVICE void load_tile_by_rows(const Machine& m, int tile, const Panel<const bfloat16>& from) {
  LYCEUM_NO_UNROLL
  for (int index = m.thread(); index < rows * Tile::chunks; index += threads) {
    const int row = index / Tile::chunks, chunk = index % Tile::chunks, cols = from.cols - chunk * 8;
    const bool inside = row < from.rows;
    const bfloat16* at = from.first + row * from.stride + chunk * 8;
    const int to = tile + Tile::offset(row, chunk);
    if (from.aligned) {
      m.copy_16(to, at, inside && cols > 0);
      continue;
    }
    EightElements values{};
    for (int i = 0; i < 8; ++i) {
      if (i < cols && inside) values.bits[i] = at[i].bits;
    }
    *m.template shared<EightElements>(to) = values;
  }
}

/// Begins copying a panel into a tile of `rows` rows. Elements outside the panel become zero. All `threads` threads
/// must call it. The tile is complete after each of them has called wait(), followed by sync().
template <class Tile, int rows, int threads, class Machine>
LYCEUM_DEVICE void load_tile(const Machine& m, int tile, const Panel<const bfloat16>& from) {
  if constexpr (threads % Tile::chunks == 0) {
    load_tile_by_columns<Tile, rows, threads>(m, tile, from);
  } else {
    load_tile_by_rows<Tile, rows, threads>(m, tile, from);
  }
}

/// A lane's accumulators of 16 · tiles rows of a product, in the layout of mma: at[t][n][number] is in row 16 t +
/// MmaLayout::c().row and column 8 n + MmaLayout::c().col.
template <int tiles, int columns>
struct Accumulators {
  float at[tiles][columns / 8][4];
  LYCEUM_DEVICE void clear() {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int n = 0; n < columns / 8; ++n) {
        LYCEUM_UNROLL
        for (int i = 0; i < 4; ++i) at[t][n][i] = 0;
      }
    }
  }
};

/// Accumulators rounded to bfloat16, in the layout in which mma reads operand A. Each lane keeps its own elements, so
/// nothing is exchanged.
template <int tiles, int columns>
struct Operand {
  std::uint32_t at[tiles][columns / 16][4];
  Operand() = default;
  template <class Machine>
  LYCEUM_DEVICE Operand(const Machine& m, const Accumulators<tiles, columns>& from) {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int k = 0; k < columns / 16; ++k) {
        LYCEUM_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* pair = from.at[t][2 * k + i / 2] + i % 2 * 2;
          at[t][k][i] = m.pack(pair[0], pair[1]);
        }
      }
    }
  }
};

/// Computes c = A · Bᵀ for rows [row, row + 16 · tiles) of tile A and the first `columns` rows of tile B.
template <int dim, int tiles, int columns, class Machine>
LYCEUM_DEVICE void multiply(const Machine& m, int a_tile, int row, int b_tile, Accumulators<tiles, columns>& c) {
  using Tile = SwizzledTile<dim>;
  const typename Tile::Walk a_at(LoadLayout::a_or_transposed_b(m.thread() % 32)), b_at(LoadLayout::b(m.thread() % 32));
  a_tile += Tile::bytes(row);
  c.clear();
  LYCEUM_UNROLL
  for (int k = 0; k < dim / 16; ++k) {
    std::uint32_t a[tiles][4];
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      m.load_matrices(a[t], a_tile + a_at.offset(16 * t, 2 * k));
    }
    LYCEUM_UNROLL
    for (int n = 0; n < columns / 16; ++n) {
      std::uint32_t b[4];
      m.load_matrices(b, b_tile + b_at.offset(16 * n, 2 * k));
      LYCEUM_UNROLL
      for (int t = 0; t < tiles; ++t) {
        m.mma(c.at[t][2 * n], a[t], b[0], b[1]);
        m.mma(c.at[t][2 * n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

/// Computes c += a · B for the first `depth` rows and columns [8 · chunk, 8 · chunk + columns) of tile B. `chunk` must
/// be a multiple of SwizzledTile::permuted.
template <int dim, int tiles, int depth, int columns, class Machine>
LYCEUM_DEVICE void multiply_add(const Machine& m, const Operand<tiles, depth>& a, int b_tile, int chunk,
                                Accumulators<tiles, columns>& c) {
  const typename SwizzledTile<dim>::Walk at(LoadLayout::a_or_transposed_b(m.thread() % 32));
  b_tile += 16 * chunk;
  LYCEUM_UNROLL
  for (int k = 0; k < depth / 16; ++k) {
    LYCEUM_UNROLL
    for (int n = 0; n < columns / 16; ++n) {
      std::uint32_t b[4];
      m.load_matrices_transposed(b, b_tile + at.offset(16 * k, 2 * n));
      LYCEUM_UNROLL
      for (int t = 0; t < tiles; ++t) {
        m.mma(c.at[t][2 * n], a.at[t][k], b[0], b[1]);
        m.mma(c.at[t][2 * n + 1], a.at[t][k], b[2], b[3]);
      }
    }
  }
}

/// Writes columns 8 · chunk to 8 · chunk + 7 of a row of the panel, as far as it has them.
LYCEUM_DEVICE void write_chunk(const Panel<bfloat16>& to, int row, int chunk, const EightElements& values) {
  const int present = row < to.rows ? to.cols - chunk * 8 : 0;
  if (present <= 0) return;
  bfloat16* out = to.first + row * to.stride + chunk * 8;
  if (to.aligned) {
    *reinterpret_cast<EightElements*>(out) = values;
  } else {
    for (int e = 0; e < 8; ++e) {
      if (e < present) out[e].bits = values.bits[e];
    }
  }
}

/// Rounds a warp's accumulators, writes them to rows [row, …) and columns [8 · chunk, …) of a tile in shared memory,
/// and from there, 16 bytes at a time, to the panel, whose first element corresponds to the tile's. No other warp may
/// access these elements of the tile at the same time.
template <class Tile, int tiles, int columns, class Machine>
LYCEUM_DEVICE void store(const Machine& m, const Accumulators<tiles, columns>& from, int tile, int row, int chunk,
                         const Panel<bfloat16>& to) {
  const int lane = m.thread() % 32;
  m.sync_warp();
  LYCEUM_UNROLL
  for (int t = 0; t < tiles; ++t) {
    LYCEUM_UNROLL
    for (int n = 0; n < columns / 8; ++n) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const MatrixPosition at = MmaLayout::c(lane, 2 * half);
        const int offset = Tile::offset(row + 16 * t + at.row, chunk + n) + 2 * at.col;
        *m.template shared<std::uint32_t>(tile + offset) = m.pack(from.at[t][n][2 * half], from.at[t][n][2 * half + 1]);
      }
    }
  }
  m.sync_warp();
  constexpr int chunks = columns / 8;
  for (int i = lane; i < 16 * tiles * chunks; i += 32) {
    const int r = row + i / chunks, c = chunk + i % chunks;
    write_chunk(to, r, c, *m.template shared<EightElements>(tile + Tile::offset(r, c)));
  }
}

}  // namespace lyceum::cuda
