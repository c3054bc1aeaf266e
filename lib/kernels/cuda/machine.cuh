#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace lyceum::cuda {

/// The GPU that a kernel's thread runs on, as the tile code names it (warp_tiles.cuh). Offsets are bytes into the
/// block's dynamic shared memory. Instructions of compute capability 8.0.
class Machine {
 public:
  __device__ explicit Machine(std::byte* memory) : memory_(memory), base_(ptx::shared_address(memory)) {}

  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ void sync_warp() const { __syncwarp(); }
  template <class T>
  __device__ __forceinline__ T* shared(int offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  /// Begins to copy 16 or 4 bytes from global memory, or zeros if they are not `present`: then
  /// nothing is read, and `from` may point anywhere that is aligned.
  __device__ __forceinline__ void copy_16(int to, const void* from, bool present) const {
    ptx::copy_async_16(address(to), from, present ? 16 : 0);
  }
  __device__ __forceinline__ void copy_4(int to, const void* from, bool present) const {
    ptx::copy_async_4(address(to), from, present ? 4 : 0);
  }
  /// Until this thread's copies have arrived.
  __device__ __forceinline__ void wait() const { ptx::wait_copies(); }

  __device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], int offset) const {
    ptx::ldmatrix<false>(words, address(offset));
  }
  __device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4], int offset) const {
    ptx::ldmatrix<true>(words, address(offset));
  }
  __device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) const {
    ptx::mma(c, a, b0, b1);
  }

  template <class T>
  __device__ __forceinline__ T from_lane_xor(T value, int mask) const {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  __device__ __forceinline__ std::uint32_t pack(float low, float high) const { return ptx::bf16_pair(low, high); }
  /// The two bf16 of a word.
  __device__ __forceinline__ void unpack(std::uint32_t word, float& low, float& high) const {
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xffff0000u);
  }
  /// The larger one; the other one if one is NaN.
  __device__ __forceinline__ float larger(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ float exp2(float x) const { return ptx::exp2(x); }
  __device__ __forceinline__ float log(float x) const { return logf(x); }

 protected:
  __device__ __forceinline__ std::uint32_t address(int offset) const {
    return base_ + static_cast<std::uint32_t>(offset);
  }

 private:
  std::byte* memory_;
  std::uint32_t base_;
};

}  // namespace lyceum::cuda
