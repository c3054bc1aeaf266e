#include "kernels/cpu/tile_gemm.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/matmul_cache.h"

namespace lyceum {

namespace {

/// Converted operands are made in slices of this depth, which stay in the second-level cache.
constexpr std::int64_t slice_depth = 512;

/// Overrides has_native_bf16() for a stream.
struct Bf16Choice {
  bool native = has_native_bf16();
};

template <class T, class Out>
std::int64_t depth_of(const Gemm<T, Out>& gemm) {
  return gemm.transpose_a ? gemm.a.rows : gemm.a.cols;
}

template <class T, class Out>
void clear(const Gemm<T, Out>& gemm) {
  for (std::int64_t r = 0; r < gemm.c.rows && !gemm.accumulate; ++r) {
    std::fill_n(gemm.c.row(r), gemm.c.cols, Out(0));
  }
}

/// Slices [first, first + count) of an operand's summed dimension.
template <class T>
Matrix<const T> slice(const Matrix<const T>& operand, bool depth_is_rows, std::int64_t first, std::int64_t count) {
  return depth_is_rows ? operand.rows_from(first, count) : operand.cols_from(first, count);
}

}  // namespace

bool has_native_bf16() { return dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx; }

void force_native_bf16(const CpuStream& stream, bool native) { stream.keep<Bf16Choice>().native = native; }

bool uses_native_bf16(const CpuStream& stream) { return stream.keep<Bf16Choice>().native; }

TileGemm::TileGemm(const CpuStream& stream, bool convert, std::int64_t max_rows, std::int64_t max_cols)
    : stream_(stream),
      convert_(convert),
      max_rows_(max_rows),
      max_cols_(max_cols),
      scratch_(stream, convert ? static_cast<std::int64_t>(sizeof(float)) *
                                     (max_rows * max_cols + slice_depth * (max_rows + max_cols))
                               : 0) {}

void TileGemm::operator()(const Gemm<float>& tile, int) const {
  const std::int64_t depth = depth_of(tile);
  if (tile.c.size() == 0) return;
  if (depth == 0) return clear(tile);
  const auto status = dnnl_sgemm(tile.transpose_a ? 'T' : 'N', tile.transpose_b ? 'T' : 'N', tile.c.rows, tile.c.cols,
                                 depth, 1.0f, tile.a.data, tile.a.stride, tile.b.data, tile.b.stride,
                                 tile.accumulate ? 1.0f : 0.0f, tile.c.data, tile.c.stride);
  require(status == dnnl_success, "oneDNN sgemm of {} x {} x {} fails with status {}", tile.c.rows, depth, tile.c.cols,
          static_cast<int>(status));
}

void TileGemm::operator()(const Gemm<double>& tile, int) const {
  const auto& [a, b, c, transpose_a, transpose_b, accumulate] = tile;
  clear(tile);
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t k = 0; k < depth_of(tile); ++k) {
      const double left = transpose_a ? a.row(k)[i] : a.row(i)[k];
      for (std::int64_t j = 0; j < c.cols; ++j) c.row(i)[j] += left * (transpose_b ? b.row(j)[k] : b.row(k)[j]);
    }
  }
}

template <class Out>
void TileGemm::converted(const Gemm<bfloat16, Out>& tile, int thread) const {
  const std::int64_t depth = depth_of(tile);
  if (tile.c.size() == 0) return;
  if (depth == 0) return clear(tile);
  auto* memory = reinterpret_cast<float*>(scratch_.of(thread));
  Matrix<float> sum(memory, tile.c.rows, tile.c.cols);
  if constexpr (std::is_same_v<Out, float>) sum = tile.c;
  else if (tile.accumulate) convert(Matrix<const Out>(tile.c), sum);
  float* a_memory = memory + max_rows_ * max_cols_;
  float* b_memory = a_memory + slice_depth * max_rows_;
  for (std::int64_t first = 0; first < depth; first += slice_depth) {
    const std::int64_t count = std::min(slice_depth, depth - first);
    const Matrix<const bfloat16> a_slice = slice(tile.a, tile.transpose_a, first, count);
    const Matrix<const bfloat16> b_slice = slice(tile.b, !tile.transpose_b, first, count);
    const Matrix<float> a(a_memory, a_slice.rows, a_slice.cols);
    const Matrix<float> b(b_memory, b_slice.rows, b_slice.cols);
    convert(a_slice, a);
    convert(b_slice, b);
    (*this)(Gemm<float>{a, b, sum, tile.transpose_a, tile.transpose_b, tile.accumulate || first > 0}, thread);
  }
  if constexpr (!std::is_same_v<Out, float>) convert(Matrix<const float>(sum), tile.c);
}

template <class Out>
void TileGemm::native(const Gemm<bfloat16, Out>& tile, int thread) const {
  if (tile.c.size() == 0) return;
  if (depth_of(tile) == 0) return clear(tile);
  stream_.keep<MatmulCache>().execute(stream_, tile, thread);
}

template void TileGemm::converted(const Gemm<bfloat16, bfloat16>&, int) const;
template void TileGemm::converted(const Gemm<bfloat16, float>&, int) const;
template void TileGemm::native(const Gemm<bfloat16, bfloat16>&, int) const;
template void TileGemm::native(const Gemm<bfloat16, float>&, int) const;

Tiling Tiling::of(std::int64_t m, std::int64_t n, std::int64_t wanted) {
  constexpr std::int64_t largest = 512, smallest = 128, step = 32;
  const auto pieces = [](std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; };
  std::int64_t row_tiles = pieces(m, largest), col_tiles = pieces(n, largest);
  while (row_tiles * col_tiles < wanted) {
    std::int64_t& longer = m * col_tiles >= n * row_tiles ? row_tiles : col_tiles;
    const std::int64_t extent = &longer == &row_tiles ? m : n;
    if (longer == 0 || extent / (2 * longer) < smallest) break;
    longer *= 2;
  }
  const auto size = [&](std::int64_t extent, std::int64_t tiles) {
    return tiles ? pieces(pieces(extent, tiles), step) * step : step;
  };
  const std::int64_t rows = size(m, row_tiles), cols = size(n, col_tiles);
  return {rows, cols, pieces(m, rows), pieces(n, cols)};
}

}  // namespace lyceum
