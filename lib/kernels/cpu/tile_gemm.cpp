#include "kernels/cpu/tile_gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>

#include "core/error.h"
#include "core/round_up.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/matmul_cache.h"

namespace lyceum {

namespace {

/// Sums are divided into slices of at most this depth and of equal size. sgemm reaches 95 % of its best rate up to this
/// depth and 60-85 % above (7 % less at 682, a third less at 8192), and converted slices of operands fit the
/// second-level cache.
constexpr std::int64_t largest_slice = 512;

/// Compiled products with f32 results have at most this depth. The depth of an expert's weight gradient is the number
/// of its rows, which changes in every step; without the bound, there would be as many compiled products as numbers of
/// rows.
constexpr std::int64_t compiled_depth = 2048;

/// The setting of a stream, which force_native_bf16() changes.
struct Bf16Choice {
  bool native = has_native_bf16();
};

template <class T, class Out>
std::int64_t depth_of(const Gemm<T, Out>& gemm) {
  return gemm.transpose_a ? gemm.a.rows : gemm.a.cols;
}

/// Sets the result to 0 unless the product is to be added to it.
template <class T, class Out>
void clear(const Gemm<T, Out>& gemm) {
  for (std::int64_t r = 0; r < gemm.c.rows && !gemm.accumulate; ++r) {
    std::fill_n(gemm.c.row(r), gemm.c.cols, Out(0));
  }
}

/// Calls work(slice of a, slice of b, add) for each slice of the summed dimension, in order. `add`: true if the product
/// is to be added to c, false if it replaces c.
template <class T, class Out, class Work>
void for_each_slice(const Gemm<T, Out>& gemm, std::int64_t step, Work&& work) {
  const std::int64_t depth = depth_of(gemm);
  for (std::int64_t first = 0; first < depth; first += step) {
    const std::int64_t count = std::min(step, depth - first);
    work(gemm.transpose_a ? gemm.a.rows_from(first, count) : gemm.a.cols_from(first, count),
         gemm.transpose_b ? gemm.b.cols_from(first, count) : gemm.b.rows_from(first, count),
         gemm.accumulate || first > 0);
  }
}

/// Calls for_each_slice() with slices that are as equal as possible.
template <class T, class Out, class Work>
void for_each_equal_slice(const Gemm<T, Out>& gemm, Work&& work) {
  const std::int64_t depth = depth_of(gemm);
  const std::int64_t slices = (depth + largest_slice - 1) / largest_slice;
  const std::int64_t even = (depth + slices - 1) / slices;
  for_each_slice(gemm, std::min(round_up<std::int64_t>(even, 16), largest_slice), work);
}

}  // namespace

bool has_native_bf16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  __builtin_cpu_init();
  return isa == dnnl::cpu_isa::avx512_core_amx || (isa == dnnl::cpu_isa::avx512_core_bf16 && __builtin_cpu_is("amd"));
}

bool can_use_native_bf16() {
  constexpr auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);  // cpu_isa values are sets of bits
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

void force_native_bf16(const CpuStream& stream, bool native) {
  require(!native || can_use_native_bf16(), "this CPU has no AVX-512: oneDNN cannot multiply bfloat16 matrices on it");
  stream.keep<Bf16Choice>().native = native;
}

bool uses_native_bf16(const CpuStream& stream) { return stream.keep<Bf16Choice>().native; }

TileGemm::TileGemm(const CpuStream& stream, bool convert, std::int64_t max_rows, std::int64_t max_cols)
    : stream_(stream),
      convert_(convert),
      products_(stream.keep<MatmulCache>()),
      max_rows_(max_rows),
      max_cols_(max_cols),
      scratch_(stream, convert ? static_cast<std::int64_t>(sizeof(float)) *
                                     (max_rows * max_cols + largest_slice * (max_rows + max_cols))
                               : 0) {}

void TileGemm::operator()(const Gemm<float>& tile, int) const {
  if (tile.c.size() == 0) return;
  if (depth_of(tile) == 0) return clear(tile);
  for_each_equal_slice(tile, [&](const Matrix<const float>& a, const Matrix<const float>& b, bool add) {
    const std::int64_t depth = tile.transpose_a ? a.rows : a.cols;
    const auto status =
        dnnl_sgemm(tile.transpose_a ? 'T' : 'N', tile.transpose_b ? 'T' : 'N', tile.c.rows, tile.c.cols, depth, 1.0f,
                   a.data, a.stride, b.data, b.stride, add ? 1.0f : 0.0f, tile.c.data, tile.c.stride);
    require(status == dnnl_success, "oneDNN sgemm of {} x {} x {} fails with status {}", tile.c.rows, depth,
            tile.c.cols, static_cast<int>(status));
  });
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
void TileGemm::multiply_converted(const Gemm<bfloat16, Out>& tile, int thread) const {
  if (tile.c.size() == 0) return;
  if (depth_of(tile) == 0) return clear(tile);
  auto* memory = reinterpret_cast<float*>(scratch_.of(thread));
  Matrix<float> sum(memory, tile.c.rows, tile.c.cols);
  if constexpr (std::is_same_v<Out, float>) {
    sum = tile.c;
  } else if (tile.accumulate) {
    convert(Matrix<const Out>(tile.c), sum);
  }
  float* a_memory = memory + max_rows_ * max_cols_;
  float* b_memory = a_memory + largest_slice * max_rows_;
  for_each_equal_slice(
      tile, [&](const Matrix<const bfloat16>& a_slice, const Matrix<const bfloat16>& b_slice, bool add) {
        const Matrix<float> a(a_memory, a_slice.rows, a_slice.cols), b(b_memory, b_slice.rows, b_slice.cols);
        convert(a_slice, a);
        convert(b_slice, b);
        (*this)(Gemm<float>{a, b, sum, tile.transpose_a, tile.transpose_b, add}, thread);
      });
  if constexpr (!std::is_same_v<Out, float>) convert(Matrix<const float>(sum), tile.c);
}

template <class Out>
void TileGemm::multiply_native(const Gemm<bfloat16, Out>& tile, int thread) const {
  if (tile.c.size() == 0) return;
  if (depth_of(tile) == 0) return clear(tile);
  if constexpr (std::is_same_v<Out, float>) {
    // Always adds: a product that replaces c would be compiled in addition. The tile is small, so clearing it is cheap.
    clear(tile);
    for_each_slice(tile, compiled_depth, [&](const Matrix<const bfloat16>& a, const Matrix<const bfloat16>& b, bool) {
      products_.execute(stream_, Gemm<bfloat16, Out>{a, b, tile.c, tile.transpose_a, tile.transpose_b, true}, thread);
    });
  } else {
    products_.execute(stream_, tile, thread);
  }
}

template void TileGemm::multiply_converted(const Gemm<bfloat16, bfloat16>&, int) const;
template void TileGemm::multiply_converted(const Gemm<bfloat16, float>&, int) const;
template void TileGemm::multiply_native(const Gemm<bfloat16, bfloat16>&, int) const;
template void TileGemm::multiply_native(const Gemm<bfloat16, float>&, int) const;

Tiling Tiling::of(std::int64_t m, std::int64_t n, std::int64_t wanted) {
  // sgemm is fastest with wide tiles; a tile of 384 x 768 floats is about as large as a core's second-level cache.
  constexpr std::int64_t most_rows = 384, most_cols = 768, smallest = 128, step = 32;
  const auto ceil_div = [](std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; };
  std::int64_t row_tiles = ceil_div(m, most_rows), col_tiles = ceil_div(n, most_cols);
  while (row_tiles * col_tiles < wanted) {
    std::int64_t& longer = m * col_tiles >= n * row_tiles ? row_tiles : col_tiles;
    const std::int64_t extent = &longer == &row_tiles ? m : n;
    if (longer == 0 || extent / (2 * longer) < smallest) break;
    longer *= 2;
  }
  const auto size = [&](std::int64_t extent, std::int64_t tiles) {
    return tiles ? round_up(ceil_div(extent, tiles), step) : step;
  };
  const std::int64_t rows = size(m, row_tiles), cols = size(n, col_tiles);
  return {rows, cols, ceil_div(m, rows), ceil_div(n, cols)};
}

}  // namespace lyceum
