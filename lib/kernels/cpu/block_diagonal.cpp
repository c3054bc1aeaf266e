#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/block_diagonal_checks.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/parallel_tasks.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {

namespace {

// Blocks of at least `gemm_width` are multiplied by GEMMs, whose operands are copied so that the elements of a block
// are neighbours. Copying costs more than smaller blocks take; loops over vectors of `panel` elements multiply these.
constexpr std::int64_t gemm_width = 32;
constexpr std::int64_t panel = 16;  // elements of a vector, and blocks whose gradients a thread computes together
constexpr std::int64_t product_rows = 64;  // rows that a thread multiplies together
constexpr std::int64_t summed_rows = 256;  // rows that a GEMM of a weight gradient sums over
constexpr std::int64_t graded_rows = 64;   // rows of a block whose gradients a thread computes together, by GEMMs

std::int64_t parts_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// Returns x in the type of sums: x itself, or a copy in `memory`.
template <class T>
Matrix<const Accumulator<T>> in_accumulator(const Matrix<const T>& x, std::vector<Accumulator<T>>& memory) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<T, A>) {
    return x;
  } else {
    memory.resize(static_cast<std::size_t>(x.size()));
    const Matrix<A> copy(memory.data(), x.rows, x.cols);
    convert(x, copy);
    return copy;
  }
}

/// Copies the elements [first, first + count) of block g in each row of x to `to`: [x.rows, count].
template <class T>
void gather(const Matrix<const T>& x, const BlockElements& elements, std::int64_t g, std::int64_t first,
            std::int64_t count, Accumulator<T>* to) {
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const T* const row = x.row(t);
    for (std::int64_t c = 0; c < count; ++c) *to++ = static_cast<Accumulator<T>>(row[elements(g, first + c)]);
  }
}

template <class T>
void multiply_by_gemms(const CpuStream& stream, const BlockDiagonal<T>& product, const BlockElements& elements) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, rows = product.x.rows, size = product_rows * b;
  std::vector<A> converted;
  const Matrix<const A> weights = in_accumulator(product.weights, converted);
  const TileGemm multiply = TileGemm::make<A>(stream, product_rows, b);
  std::vector<A> memory(static_cast<std::size_t>(2 * size * stream.threads()));
  parallel_tasks(stream.threads(), parts_of(rows, product_rows), [&](std::int64_t part, int thread) {
    const std::int64_t first = part * product_rows, count = std::min(product_rows, rows - first);
    A *const in = memory.data() + 2 * size * thread, *const out = in + size;
    for (std::int64_t g = 0; g < elements.blocks; ++g) {
      gather(product.x.rows_from(first, count), elements, g, 0, b, in);
      multiply(Gemm<A>{.a = {in, count, b},
                       .b = weights.rows_from(g * b, b),
                       .c = {out, count, b},
                       .transpose_b = !product.transpose},
               thread);
      for (std::int64_t t = 0; t < count; ++t) {
        T* const y = product.y.row(first + t);
        for (std::int64_t r = 0; r < b; ++r) y[elements(g, r)] = static_cast<T>(out[t * b + r]);
      }
    }
  });
}

template <class T>
void add_gradients_by_gemms(const CpuStream& stream, const BlockDiagonalWeightGrad<T>& grad,
                            const BlockElements& elements) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, parts = parts_of(b, graded_rows), size = summed_rows * (b + graded_rows);
  const TileGemm multiply = TileGemm::make<A>(stream, graded_rows, b);
  std::vector<A> memory(static_cast<std::size_t>(size * stream.threads()));
  parallel_tasks(stream.threads(), elements.blocks * parts, [&](std::int64_t task, int thread) {
    const std::int64_t g = task / parts, first = task % parts * graded_rows, count = std::min(graded_rows, b - first);
    A *const x = memory.data() + size * thread, *const dy = x + summed_rows * b;
    for (std::int64_t t = 0; t < grad.x.rows; t += summed_rows) {
      const std::int64_t rows = std::min(summed_rows, grad.x.rows - t);
      gather(grad.x.rows_from(t, rows), elements, g, 0, b, x);
      gather(grad.dy.rows_from(t, rows), elements, g, first, count, dy);
      multiply(Gemm<A>{.a = {dy, rows, count},
                       .b = {x, rows, b},
                       .c = grad.d_weights.rows_from(g * b + first, count),
                       .transpose_a = true,
                       .accumulate = true},
               thread);
    }
  });
}

/// Returns the elements (g, r, c) of all blocks, transposed with `transpose`, in the order in which the inner loops
/// read them: [g][c][r] for neighbours, with r filled up to `lanes` by zeros, and [r][c][g] for strided.
template <class T>
std::vector<Accumulator<T>> in_order(const BlockDiagonal<T>& product, const BlockElements& elements,
                                     std::int64_t lanes) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, blocks = elements.blocks;
  const bool neighbours = elements.order == BlockOrder::neighbours;
  std::vector<A> ordered(static_cast<std::size_t>(blocks * b * (neighbours ? lanes : b)));
  for (std::int64_t g = 0; g < blocks; ++g) {
    for (std::int64_t r = 0; r < b; ++r) {
      for (std::int64_t c = 0; c < b; ++c) {
        const T own = product.transpose ? product.weights.row(g * b + c)[r] : product.weights.row(g * b + r)[c];
        const std::int64_t position = neighbours ? (g * b + c) * lanes + r : (r * b + c) * blocks + g;
        ordered[static_cast<std::size_t>(position)] = static_cast<A>(own);
      }
    }
  }
  return ordered;
}

/// Multiplies rows [first, last) with `neighbours`. weights: [blocks, b, lanes] of in_order(), lanes ≥ b.
template <std::int64_t lanes, class T>
void multiply_neighbours(const BlockDiagonal<T>& product, const BlockElements& elements, const Accumulator<T>* weights,
                         std::int64_t first, std::int64_t last) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b;
  for (std::int64_t g = 0; g < elements.blocks; ++g) {
    const A* const block = weights + g * b * lanes;
    for (std::int64_t t = first; t < last; ++t) {
      const T* const x = product.x.row(t) + g * b;
      T* const y = product.y.row(t) + g * b;
      A sums[lanes] = {};
      for (std::int64_t c = 0; c < b; ++c) {
        const A own = static_cast<A>(x[c]);
#pragma omp simd
        for (std::int64_t i = 0; i < lanes; ++i) sums[i] += block[c * lanes + i] * own;
      }
      for (std::int64_t i = 0; i < b; ++i) y[i] = static_cast<T>(sums[i]);
    }
  }
}

/// Multiplies rows [first, last) with `strided`. weights: [b, b, blocks] of in_order().
template <class T>
void multiply_strided(const BlockDiagonal<T>& product, const BlockElements& elements, const Accumulator<T>* weights,
                      std::int64_t first, std::int64_t last) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, blocks = elements.blocks;
  std::vector<A> sums(static_cast<std::size_t>(blocks));
  for (std::int64_t t = first; t < last; ++t) {
    for (std::int64_t r = 0; r < b; ++r) {
      std::ranges::fill(sums, A{0});
      for (std::int64_t c = 0; c < b; ++c) {
        const A* const own = weights + (r * b + c) * blocks;
        const T* const x = product.x.row(t) + c * blocks;
#pragma omp simd
        for (std::int64_t g = 0; g < blocks; ++g) sums[static_cast<std::size_t>(g)] += own[g] * static_cast<A>(x[g]);
      }
      T* const y = product.y.row(t) + r * blocks;
      for (std::int64_t g = 0; g < blocks; ++g) y[g] = static_cast<T>(sums[static_cast<std::size_t>(g)]);
    }
  }
}

/// Adds the gradients of `count` ≤ panel blocks from `begin` on with `neighbours`. lanes ≥ b.
template <std::int64_t lanes, class T>
void add_neighbours(const BlockDiagonalWeightGrad<T>& grad, std::int64_t b, std::int64_t begin, std::int64_t count) {
  using A = Accumulator<T>;
  std::vector<A> sums(static_cast<std::size_t>(count * b * lanes)), inputs(static_cast<std::size_t>(count * lanes));
  for (std::int64_t t = 0; t < grad.x.rows; ++t) {
    const T *const x = grad.x.row(t) + begin * b, *const dy = grad.dy.row(t) + begin * b;
    for (std::int64_t g = 0; g < count; ++g) {
      A* const input = inputs.data() + g * lanes;  // zeros from b on
      for (std::int64_t c = 0; c < b; ++c) input[c] = static_cast<A>(x[g * b + c]);
      for (std::int64_t at = g * b; at < (g + 1) * b; ++at) {
        const A slope = static_cast<A>(dy[at]);
        A* const sum = sums.data() + at * lanes;
#pragma omp simd
        for (std::int64_t i = 0; i < lanes; ++i) sum[i] += slope * input[i];
      }
    }
  }
  for (std::int64_t at = 0; at < count * b; ++at) {
    for (std::int64_t c = 0; c < b; ++c) {
      grad.d_weights.row(begin * b + at)[c] += sums[static_cast<std::size_t>(at * lanes + c)];
    }
  }
}

/// Adds the gradients of `count` ≤ panel blocks from `begin` on with `strided`.
template <class T>
void add_strided(const BlockDiagonalWeightGrad<T>& grad, const BlockElements& elements, std::int64_t begin,
                 std::int64_t count) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, blocks = elements.blocks;
  std::vector<A> sums(static_cast<std::size_t>(b * b * panel));  // [r, c, g]
  for (std::int64_t t = 0; t < grad.x.rows; ++t) {
    for (std::int64_t r = 0; r < b; ++r) {
      const T* const slopes = grad.dy.row(t) + r * blocks + begin;
      for (std::int64_t c = 0; c < b; ++c) {
        const T* const x = grad.x.row(t) + c * blocks + begin;
        A* const sum = sums.data() + (r * b + c) * panel;
        if (count == panel) {  // a loop of known length is one vector operation
#pragma omp simd
          for (std::int64_t g = 0; g < panel; ++g) sum[g] += static_cast<A>(slopes[g]) * static_cast<A>(x[g]);
        } else {
          for (std::int64_t g = 0; g < count; ++g) sum[g] += static_cast<A>(slopes[g]) * static_cast<A>(x[g]);
        }
      }
    }
  }
  for (std::int64_t g = 0; g < count; ++g) {
    for (std::int64_t at = 0; at < b * b; ++at) {
      grad.d_weights.row((begin + g) * b + at / b)[at % b] += sums[static_cast<std::size_t>(at * panel + g)];
    }
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const BlockDiagonal<T>& product) {
  const BlockElements elements = require_fitting(product);
  if (elements.b >= gemm_width) return multiply_by_gemms(stream, product, elements);
  const std::int64_t lanes = elements.b <= panel ? panel : 2 * panel;
  const std::vector<Accumulator<T>> weights = in_order(product, elements, lanes);
  const std::int64_t grain = std::min(product_rows, rows_per_thread(product.x.cols * elements.b));
  parallel_for(stream, product.x.rows, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += product_rows) {
      const std::int64_t end = std::min(last, begin + product_rows);
      if (elements.order == BlockOrder::strided) {
        multiply_strided(product, elements, weights.data(), begin, end);
      } else if (lanes == panel) {
        multiply_neighbours<panel>(product, elements, weights.data(), begin, end);
      } else {
        multiply_neighbours<2 * panel>(product, elements, weights.data(), begin, end);
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const BlockDiagonalWeightGrad<T>& grad) {
  const BlockElements elements = require_fitting(grad);
  const std::int64_t b = elements.b;
  if (b >= gemm_width) return add_gradients_by_gemms(stream, grad, elements);
  parallel_for_dynamic(stream, elements.blocks, panel, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += panel) {
      const std::int64_t count = std::min(panel, elements.blocks - begin);
      if (elements.order == BlockOrder::strided) {
        add_strided(grad, elements, begin, count);
      } else if (b <= panel) {
        add_neighbours<panel>(grad, b, begin, count);
      } else {
        add_neighbours<2 * panel>(grad, b, begin, count);
      }
    }
  });
}

LYCEUM_BLOCK_DIAGONAL_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
