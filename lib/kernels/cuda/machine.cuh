#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace lyceum::cuda {

/// The operations of a GPU thread of compute capability 8.0, as used by the tile code (warp_tiles.cuh). One object per
/// thread. Offsets are bytes in the block's dynamic shared memory.
class Machine {
 public:
  __device__ explicit Machine(std::byte* memory) : memory_(memory), base_(ptx::shared_address(memory)) {}

  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ void sync_warp() const { __syncwarp(); }
  /// Address of shared memory at `offset`.
  template <class T>
  __device__ __forceinline__ T* shared(int offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  /// Begins copying 16 or 4 bytes from global to shared memory. If not `present`, writes zeros instead: nothing is
  /// read, and `from` may be any aligned address.
  __device__ __forceinline__ void copy_16(int to, const void* from, bool present) const {
    ptx::copy_async_16(address(to), from, present ? 16 : 0);
  }
  __device__ __forceinline__ void copy_4(int to, const void* from, bool present) const {
    ptx::copy_async_4(address(to), from, present ? 4 : 0);
  }
  /// Waits until this thread's copies are complete.
  __device__ __forceinline__ void wait() const { ptx::wait_copies(); }

  /// Load four 8 x 8 matrices of 16-bit elements (ldmatrix.x4), as they are or transposed. Lane 8 i + r passes the
  /// offset of row r of matrix i.
  __device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], int offset) const {
    ptx::ldmatrix<false>(words, address(offset));
  }
  __device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4], int offset) const {
    ptx::ldmatrix<true>(words, address(offset));
  }
  /// Computes c += a · b for a [16, 16] and b [16, 8] of the warp, see MmaLayout.
  __device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) const {
    ptx::mma(c, a, b0, b1);
  }

  /// Returns `value` of the lane whose index differs in the bits of `mask`. All lanes must call it.
  template <class T>
  __device__ __forceinline__ T from_lane_xor(T value, int mask) const {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  /// Rounds both numbers to bfloat16 and packs them, `low` in the lower half.
  __device__ __forceinline__ std::uint32_t pack(float low, float high) const { return ptx::bf16_pair(low, high); }
  /// Splits a word into its two bf16 elements.
  __device__ __forceinline__ void unpack(std::uint32_t word, float& low, float& high) const {
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xffff0000u);
  }
  /// Returns the larger number; if one is NaN, the other.
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
