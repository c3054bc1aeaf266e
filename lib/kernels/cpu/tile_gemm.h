#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/parallel_tasks.h"
#include "kernels/gemm.h"

namespace lyceum {

class MatmulCache;

/// Whether the CPU multiplies bfloat16 matrices faster than float ones, so that oneDNN's bf16 primitives are worth
/// their while: with AMX, or AVX-512 BF16 on AMD (Zen 4 and later), where they were twice as fast. Elsewhere, also with
/// AVX-512 BF16 on Intel, they are slower than converting to float, multiplying there and rounding once. Not timed,
/// since the choice changes the rounding.
bool has_native_bf16();

/// Whether oneDNN has bf16 primitives for this CPU at all: it needs AVX-512.
bool can_use_native_bf16();

/// For tests: makes the stream's bfloat16 products use oneDNN's bf16 primitives, or not, worth their while or not.
/// Fails where the CPU cannot.
void force_native_bf16(const CpuStream& stream, bool native);
bool uses_native_bf16(const CpuStream& stream);

/// Products that one thread computes alone: the tiles that all GEMMs of this module are divided into. Made before a
/// parallel_tasks call and used inside it.
class TileGemm {
 public:
  /// Tiles of type T have at most `max_rows` x `max_cols` elements of result.
  template <class T>
  static TileGemm make(const CpuStream& stream, std::int64_t max_rows, std::int64_t max_cols) {
    return {stream, std::is_same_v<T, bfloat16> && !uses_native_bf16(stream), max_rows, max_cols};
  }

  template <class Out>
  void operator()(const Gemm<bfloat16, Out>& tile, int thread) const {
    convert_ ? converted(tile, thread) : native(tile, thread);
  }
  void operator()(const Gemm<float>& tile, int thread) const;
  void operator()(const Gemm<double>& tile, int thread) const;

 private:
  TileGemm(const CpuStream& stream, bool convert, std::int64_t max_rows, std::int64_t max_cols);
  template <class Out>
  void converted(const Gemm<bfloat16, Out>& tile, int thread) const;
  template <class Out>
  void native(const Gemm<bfloat16, Out>& tile, int thread) const;

  CpuStream stream_;
  bool convert_;
  MatmulCache& products_;  // found here: looking into a stream is for one thread, the tiles are for many
  std::int64_t max_rows_, max_cols_;
  ThreadScratch scratch_;  // converted operands and the sum, when converting
};

/// Into which tiles an m x n result is cut.
struct Tiling {
  std::int64_t rows, cols;            // of a tile; the last ones may be smaller
  std::int64_t row_tiles, col_tiles;  // how many

  /// At least `wanted` tiles where the result is large enough for it.
  static Tiling of(std::int64_t m, std::int64_t n, std::int64_t wanted);
  std::int64_t count() const { return row_tiles * col_tiles; }
};

/// The part of a GEMM that makes rows [row, row + rows) x columns [col, col + cols) of c.
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
