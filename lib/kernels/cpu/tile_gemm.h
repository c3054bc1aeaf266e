#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/native_bf16.h"
#include "kernels/cpu/parallel_tasks.h"
#include "kernels/gemm.h"

namespace lyceum {

class MatmulCache;

/// Multiplies matrices on a single thread: the tiles into which all GEMMs on the CPU are divided. Create it before a
/// parallel_tasks() call and use it in the tasks; it is safe to call on several threads.
class TileGemm {
 public:
  /// `max_rows` x `max_cols`: the largest result of a tile. Only converted bfloat16 tiles depend on it.
  template <class T>
  static TileGemm make(const CpuStream& stream, std::int64_t max_rows, std::int64_t max_cols) {
    return {stream, std::is_same_v<T, bfloat16> && !uses_native_bf16(stream), max_rows, max_cols};
  }

  /// Computes the product `tile` on the calling thread, which is number `thread` of the parallel_tasks() call.
  template <class Out>
  void operator()(const Gemm<bfloat16, Out>& tile, int thread) const {
    convert_ ? multiply_converted(tile, thread) : multiply_native(tile, thread);
  }
  void operator()(const Gemm<float>& tile, int thread) const;
  void operator()(const Gemm<double>& tile, int thread) const;

 private:
  TileGemm(const CpuStream& stream, bool convert, std::int64_t max_rows, std::int64_t max_cols);
  /// Converts and multiplies slices of the summed dimension in float, one after the other, and rounds the sum once.
  template <class Out>
  void multiply_converted(const Gemm<bfloat16, Out>& tile, int thread) const;
  /// Calls oneDNN's bf16 primitive.
  template <class Out>
  void multiply_native(const Gemm<bfloat16, Out>& tile, int thread) const;

  CpuStream stream_;
  bool convert_;
  MatmulCache& products_;  // looked up in advance, because CpuStream::keep() is not thread-safe
  std::int64_t max_rows_, max_cols_;
  ThreadScratch scratch_;  // for multiply_converted(): slices of operands, and the sum
};

/// The division of a matrix into tiles.
struct Tiling {
  std::int64_t rows, cols;            // extents of a tile; the last tiles may be smaller
  std::int64_t row_tiles, col_tiles;  // number of tiles in each direction

  /// Divides an m x n result into at least `wanted` tiles, or fewer if they would become too small to be efficient.
  static Tiling of(std::int64_t m, std::int64_t n, std::int64_t wanted);
  std::int64_t count() const { return row_tiles * col_tiles; }
};

/// Returns the GEMM that computes rows [row, row + rows) and columns [col, col + cols) of c.
template <class T, class Out>
Gemm<T, Out> tile_of(const Gemm<T, Out>& gemm, std::int64_t row, std::int64_t rows, std::int64_t col,
                     std::int64_t cols) {
  Gemm<T, Out> tile = gemm;
  tile.a = gemm.transpose_a ? gemm.a.cols_from(row, rows) : gemm.a.rows_from(row, rows);
  tile.b = gemm.transpose_b ? gemm.b.rows_from(col, cols) : gemm.b.cols_from(col, cols);
  tile.c = gemm.c.rows_from(row, rows).cols_from(col, cols);
  return tile;
}

}  // namespace lyceum
