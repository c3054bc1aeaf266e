#include <algorithm>
#include <vector>

#include "kernels/block_diagonal_checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

namespace {

constexpr std::int64_t panel = 16;  // blocks whose gradients a thread computes together

/// Returns the elements (g, r, c) of all blocks, transposed with `transpose`, in the order in which the inner loops
/// read them: [g][c][r] for neighbours, so that r is contiguous, and [r][c][g] for strided, so that g is contiguous.
template <class T>
std::vector<Accumulator<T>> in_order(const BlockDiagonal<T>& product, const BlockElements& elements) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, blocks = elements.blocks;
  std::vector<A> ordered(static_cast<std::size_t>(blocks * b * b));
  for (std::int64_t g = 0; g < blocks; ++g) {
    for (std::int64_t r = 0; r < b; ++r) {
      for (std::int64_t c = 0; c < b; ++c) {
        const T own = product.transpose ? product.weights.row(g * b + c)[r] : product.weights.row(g * b + r)[c];
        const std::int64_t position =
            elements.order == BlockOrder::neighbours ? (g * b + c) * b + r : (r * b + c) * blocks + g;
        ordered[static_cast<std::size_t>(position)] = static_cast<A>(own);
      }
    }
  }
  return ordered;
}

/// sums[i] = Σ_{c < b} w[c · step + i] · x[c · along + i · every] for i < count. `every` is 0 or 1.
template <class T>
void multiply_add(std::int64_t count, std::int64_t b, const Accumulator<T>* w, std::int64_t step, const T* x,
                  std::int64_t along, std::int64_t every, Accumulator<T>* sums) {
  using A = Accumulator<T>;
  std::fill_n(sums, count, A{0});
  for (std::int64_t c = 0; c < b; ++c) {
    const A* const row = w + c * step;
    const T* const from = x + c * along;
    if (every == 0) {
      const A own = static_cast<A>(*from);
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sums[i] += row[i] * own;
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sums[i] += row[i] * static_cast<A>(from[i]);
    }
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const BlockDiagonal<T>& product) {
  using A = Accumulator<T>;
  const BlockElements elements = require_fitting(product);
  const std::int64_t b = elements.b, blocks = elements.blocks;
  const std::vector<A> weights = in_order(product, elements);
  const bool neighbours = elements.order == BlockOrder::neighbours;
  parallel_for(stream, product.x.rows, rows_per_thread(product.x.cols * b), [&](std::int64_t first, std::int64_t last) {
    const std::int64_t count = neighbours ? b : blocks;
    std::vector<A> sums(static_cast<std::size_t>(count));
    for (std::int64_t t = first; t < last; ++t) {
      const T* x = product.x.row(t);
      T* y = product.y.row(t);
      for (std::int64_t part = 0; part < product.x.cols / count; ++part) {  // neighbours: block g; strided: row r
        const A* w = weights.data() + part * b * count;
        multiply_add<T>(count, b, w, count, neighbours ? x + part * b : x, neighbours ? 1 : blocks, neighbours ? 0 : 1,
                        sums.data());
        for (std::int64_t i = 0; i < count; ++i)
          y[part * count + i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
      }
    }
  });
}

namespace {

/// Adds the gradients of blocks [begin, begin + panel), or up to the last block.
template <class T>
void add_gradients(const BlockDiagonalWeightGrad<T>& grad, const BlockElements& elements, std::int64_t begin) {
  using A = Accumulator<T>;
  const std::int64_t b = elements.b, count = std::min(panel, elements.blocks - begin);
  const bool neighbours = elements.order == BlockOrder::neighbours;
  std::vector<A> sums(static_cast<std::size_t>(b * b * panel), A{0});  // neighbours: [g, r, c]; strided: [r, c, g]
  for (std::int64_t t = 0; t < grad.x.rows; ++t) {
    const T *x = grad.x.row(t), *dy = grad.dy.row(t);
    if (neighbours) {
      for (std::int64_t at = 0; at < count * b; ++at) {
        const A slope = static_cast<A>(dy[begin * b + at]);
        const T* const from = x + (begin + at / b) * b;
        A* const sum = sums.data() + at * b;
#pragma omp simd
        for (std::int64_t c = 0; c < b; ++c) sum[c] += slope * static_cast<A>(from[c]);
      }
      continue;
    }
    for (std::int64_t r = 0; r < b; ++r) {
      const T* const slopes = dy + r * elements.blocks + begin;
      for (std::int64_t c = 0; c < b; ++c) {
        const T* const from = x + c * elements.blocks + begin;
        A* const sum = sums.data() + (r * b + c) * panel;
#pragma omp simd
        for (std::int64_t g = 0; g < count; ++g) sum[g] += static_cast<A>(slopes[g]) * static_cast<A>(from[g]);
      }
    }
  }
  for (std::int64_t g = 0; g < count; ++g) {
    for (std::int64_t at = 0; at < b * b; ++at) {
      const std::int64_t position = neighbours ? g * b * b + at : at * panel + g;
      grad.d_weights.row((begin + g) * b + at / b)[at % b] += sums[static_cast<std::size_t>(position)];
    }
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const BlockDiagonalWeightGrad<T>& grad) {
  const BlockElements elements = require_fitting(grad);
  parallel_for_dynamic(stream, elements.blocks, panel, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += panel) add_gradients(grad, elements, begin);
  });
}

LYCEUM_BLOCK_DIAGONAL_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
