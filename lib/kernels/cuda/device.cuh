#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "core/tensor.h"
#ifdef __CUDACC__
#include "kernels/cuda/ptx.cuh"
#endif

namespace lyceum {

constexpr int warp_size = 32;
constexpr unsigned whole_warp = 0xffffffffu;

/// widen() converts an element to the type that sums are kept in; narrow() converts back, rounding to nearest even.
__device__ inline float widen(bfloat16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }
__device__ inline float widen(float value) { return value; }
__device__ inline double widen(double value) { return value; }

template <class T>
__device__ T narrow(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    bfloat16 result;
    result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return result;
  } else {
    return value;
  }
}

/// Returns the block's dynamic shared memory, whose size is set at launch (start_shared()).
__device__ inline std::byte* launched_shared() {
  extern __shared__ __align__(1024) std::byte launched_shared_memory[];
  return launched_shared_memory;
}

/// `width` neighbouring elements, read and written with accesses of up to 16 bytes. The address must be aligned
/// accordingly.
template <class T, int width>
struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) Pack {
  T values[width];
  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};

/// Read and write `width` elements at an address that is aligned to the pack.
template <int width, class T>
__device__ Pack<std::remove_const_t<T>, width> load(T* from) {
  return *reinterpret_cast<const Pack<std::remove_const_t<T>, width>*>(from);
}
/// Writes to global memory. nvcc splits stores of a Pack into stores of its elements, each of which moves as many
/// sectors as the whole, unless the type of the store is explicit.
template <class T, int width>
__device__ void store(T* to, const Pack<T, width>& pack) {
#ifdef __CUDA_ARCH__
  constexpr int bytes = sizeof(pack) < 16 ? sizeof(pack) : 16;
  if constexpr (bytes >= 8) {
    using Word = std::conditional_t<bytes == 16, uint4, uint2>;
    const auto* const from = reinterpret_cast<const std::byte*>(&pack);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pack) / bytes); ++i) {
      Word word;
      memcpy(&word, from + i * bytes, bytes);
      ptx::store_global(reinterpret_cast<Word*>(to) + i, word);
    }
    return;
  }
#endif
  *reinterpret_cast<Pack<T, width>*>(to) = pack;
}

/// Number of elements of T in 16 bytes.
template <class T>
constexpr int pack_width = 16 / static_cast<int>(sizeof(T));

__host__ __device__ inline bool is_aligned(const void* address, std::uintptr_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// True if every row of `matrix` can be processed in packs of `width` elements.
template <class T>
bool fits_packs(const Matrix<T>& matrix, int width) {
  const std::uintptr_t bytes = width * sizeof(T) < 16 ? width * sizeof(T) : 16;
  return matrix.cols % width == 0 && (matrix.stride % width == 0 || matrix.rows <= 1) && is_aligned(matrix.data, bytes);
}
template <class T>
bool fits_packs(std::span<T> values, int width) {
  return values.size() % static_cast<std::size_t>(width) == 0 && is_aligned(values.data());
}

struct Sum {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
/// Returns the larger number. A NaN in `b` is ignored, but a NaN in `a` is returned: start from a number, such as minus
/// infinity, to ignore every NaN.
struct Largest {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};

/// Combines `value` of all 32 lanes with join(). Every lane gets the same result. Neighbours are combined first, so the
/// order is fixed. All lanes must call it.
template <class A, class Join>
__device__ A join_warp(A value, Join join) {
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const A other = __shfl_xor_sync(whole_warp, value, distance);
    value = (threadIdx.x & static_cast<unsigned>(distance)) ? join(other, value) : join(value, other);
  }
  return value;
}

/// Combines `value` of all `threads` threads of a one-dimensional block with join(), in a fixed order. Every thread
/// gets the same result. All threads must call it: it contains barriers.
template <int threads, class A, class Join>
__device__ A join_block(A value, Join join) {
  static_assert(threads % warp_size == 0);
  constexpr int warps = threads / warp_size;
  __shared__ A partial[warps];
  value = join_warp(value, join);
  if constexpr (warps > 1) {
    __syncthreads();  // all threads have read the partial results of the previous call
    if (threadIdx.x % warp_size == 0) partial[threadIdx.x / warp_size] = value;
    __syncthreads();
    value = partial[0];
    for (int w = 1; w < warps; ++w) value = join(value, partial[w]);
  }
  return value;
}

}  // namespace lyceum
