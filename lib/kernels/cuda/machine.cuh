#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/dtype.h"

namespace lyceum::cuda {

/// The GPU that a kernel's thread runs on, as the tile code names it (warp_tiles.cuh). Offsets are bytes into the
/// block's dynamic shared memory. Instructions of compute capability 8.0.
class Machine {
 public:
  __device__ explicit Machine(std::byte* memory)
      : memory_(memory), base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))) {}

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
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(present ? 16 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void copy_4(int to, const void* from, bool present) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address(to)), "l"(__cvta_generic_to_global(from)),
                 "r"(present ? 4 : 0)
                 : "memory");
  }
  /// Until this thread's copies have arrived.
  __device__ __forceinline__ void wait() const { asm volatile("cp.async.wait_all;" ::: "memory"); }

  /// Four 8 x 8 matrices of 16-bit elements; lane 8 i + r names row r of matrix i. [PTX ISA, ldmatrix]
  __device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], int offset) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address(offset))
                 : "memory");
  }
  __device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4], int offset) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address(offset))
                 : "memory");
  }
  /// c += a · b, [16, 16] · [16, 8]
  __device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  template <class T>
  __device__ __forceinline__ T from_lane_xor(T value, int mask) const {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  /// Both rounded to bfloat16, `low` in the lower half.
  __device__ __forceinline__ std::uint32_t pack(float low, float high) const {
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }

  __device__ __forceinline__ float widen(float value) const { return value; }
  __device__ __forceinline__ double widen(double value) const { return value; }
  __device__ __forceinline__ float widen(bfloat16 value) const {
    return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
  }
  __device__ __forceinline__ void narrow(float value, float& to) const { to = value; }
  __device__ __forceinline__ void narrow(double value, double& to) const { to = value; }
  __device__ __forceinline__ void narrow(float value, bfloat16& to) const {
    to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }

  /// The larger one; the other one if one is NaN.
  __device__ __forceinline__ float larger(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ double larger(double a, double b) const { return fmax(a, b); }
  /// Within 2 units of the last place; subnormal results become zero.
  __device__ __forceinline__ float exp2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ __forceinline__ float exp(float x) const { return expf(x); }
  __device__ __forceinline__ double exp(double x) const { return ::exp(x); }
  __device__ __forceinline__ float log(float x) const { return logf(x); }
  __device__ __forceinline__ double log(double x) const { return ::log(x); }

 protected:
  __device__ __forceinline__ std::uint32_t address(int offset) const {
    return base_ + static_cast<std::uint32_t>(offset);
  }

 private:
  std::byte* memory_;
  std::uint32_t base_;
};

}  // namespace lyceum::cuda
