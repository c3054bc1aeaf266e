#include "core/cuda_processors.h"
#include "kernels/cuda/grouped_plan.cuh"

namespace lyceum::grouped {

namespace {

/// Tile extents: a block computes a tile of c of 64 x 64 in steps of 16 along k; each thread computes 4 x 4 elements.
struct Tiling {
  static constexpr int m = 64, n = 64, k = 16, threads = 256;
};

/// The operands of one step in shared memory. One padding column puts the elements of a column into different banks.
template <class A>
struct Operands {
  A a[Tiling::k][Tiling::m + 1];
  A b[Tiling::k][Tiling::n + 1];
};

/// Returns one element of an operand, or 0 outside of it. `picked`, if not null, maps a row index to a row of the
/// matrix in memory, −1 for zeros.
template <class T>
__device__ Accumulator<T> element(const void* operand, std::int64_t stride, bool along_k, std::int32_t at,
                                  std::int32_t extent, std::int32_t k, std::int32_t depth, const std::int32_t* picked) {
  if (at >= extent || k >= depth) return 0;
  std::int32_t row = along_k ? at : k;
  if (picked) row = picked[row];
  return row < 0 ? 0 : widen(static_cast<const T*>(operand)[row * stride + (along_k ? k : at)]);
}

/// Copies the operands of one step to shared memory. Neighbouring threads read neighbouring elements of global memory.
template <Product product, class T>
__device__ void load(Operands<Accumulator<T>>& to, const Expert& expert, Corner corner, std::int32_t k) {
  constexpr bool a_k = a_along_k(product), b_k = b_along_k(product);
  for (int i = threadIdx.x; i < Tiling::m * Tiling::k; i += Tiling::threads) {
    const int at_k = a_k ? i % Tiling::k : i / Tiling::m, at_m = a_k ? i / Tiling::k : i % Tiling::m;
    to.a[at_k][at_m] =
        element<T>(expert.a, expert.a_stride, a_k, corner.m + at_m, expert.filled, k + at_k, expert.k, expert.a_picked);
  }
  for (int i = threadIdx.x; i < Tiling::n * Tiling::k; i += Tiling::threads) {
    const int at_k = b_k ? i % Tiling::k : i / Tiling::n, at_n = b_k ? i / Tiling::k : i % Tiling::n;
    to.b[at_k][at_n] =
        element<T>(expert.b, expert.b_stride, b_k, corner.n + at_n, expert.n, k + at_k, expert.k, expert.b_picked);
  }
}

/// Computes one tile, summing in ascending order of k. All threads of the block call it.
template <Product product, class T>
__device__ void multiply(Operands<Accumulator<T>>& shared, const Expert& expert, Corner corner) {
  using A = Accumulator<T>;
  const int row = threadIdx.x / 16, col = threadIdx.x % 16;
  A c[4][4] = {};
  for (std::int32_t k = 0; k < expert.k; k += Tiling::k) {
    load<product, T>(shared, expert, corner, k);
    __syncthreads();
    for (int step = 0; step < Tiling::k; ++step) {
      LYCEUM_UNROLL
      for (int i = 0; i < 4; ++i) {
        LYCEUM_UNROLL
        for (int j = 0; j < 4; ++j) c[i][j] += shared.a[step][row + 16 * i] * shared.b[step][col + 16 * j];
      }
    }
    __syncthreads();
  }
  const bool adds = expert.accumulate;  // read here, since the compiler would read it again after each store
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    LYCEUM_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::int32_t m = corner.m + row + 16 * i, n = corner.n + col + 16 * j;
      if (m >= expert.m || n >= expert.n) continue;
      const std::int64_t at = m * expert.c_stride + n;
      if constexpr (product == Product::weight_grad) {
        auto* const dw = static_cast<A*>(expert.c) + at;
        *dw = (adds ? *dw : A(0)) + c[i][j];
      } else {
        static_cast<T*>(expert.c)[at] = narrow<T>(m < expert.filled ? c[i][j] : A(0));
      }
    }
  }
}

template <Product product, class T>
__global__ void __launch_bounds__(Tiling::threads, 3) plain_kernel(Plan plan) {
  __shared__ Operands<Accumulator<T>> shared;
  each_tile<Tiling>(
      plan, [&](std::int32_t, const Expert& expert, Corner corner) { multiply<product, T>(shared, expert, corner); });
}

template <class T>
auto kernel_of(Product product) {
  switch (product) {
    case Product::forward: return plain_kernel<Product::forward, T>;
    case Product::dgrad: return plain_kernel<Product::dgrad, T>;
    default: return plain_kernel<Product::weight_grad, T>;
  }
}

}  // namespace

template <class T>
void run_plain(const Launch& launch, const Rows<T>& rows, std::span<const Weight> weights) {
  const MadePlan made = make_plan(launch, rows, weights, Tiling::m, Tiling::n);
  start(launch.stream, launch.name, kernel_of<T>(launch.product),
        4 * static_cast<unsigned>(persistent_processors(launch.stream)), Tiling::threads, made.plan);
}

#define LYCEUM_ROWS_INSTANCE(...) template void run_plain(const Launch&, const __VA_ARGS__&, std::span<const Weight>);
LYCEUM_FLOATS(LYCEUM_ROWS_INSTANCE, Rows)

}  // namespace lyceum::grouped
