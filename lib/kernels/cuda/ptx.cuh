#pragma once

#include <cstdint>

// Wrappers of PTX instructions of compute capability 8.0. Names and semantics are those of the PTX ISA. Addresses are
// in shared memory.

namespace lyceum::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Write 16 or 8 bytes to global memory with one access. The address must be a multiple of the size.
__device__ __forceinline__ void store_global(uint4* to, const uint4& words) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ __forceinline__ void store_global(uint2* to, const uint2& words) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y)
               : "memory");
}

/// Begins copying 16 bytes from global memory. Only the first `present` bytes are read; the others become zero.
__device__ __forceinline__ void copy_async_16(std::uint32_t to, const void* from, int present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(present)
               : "memory");
}
__device__ __forceinline__ void copy_async_4(std::uint32_t to, const void* from, int present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(present)
               : "memory");
}
/// Makes the copies since the last call one group.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// wait_copies<Pending>() waits until at most `Pending` groups of this thread are incomplete; wait_copies() waits for
/// all its copies.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Loads four 8 x 8 matrices of 16-bit elements. Lane 8 i + r passes the address of row r of matrix i.
template <bool Transposed>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&to)[4], std::uint32_t address) {
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}

/// Computes c += a · b for a [16, 16] and b [16, 8], bf16 operands, f32 sums.
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Rounds both numbers to bfloat16 and packs them, `low` in the lower half.
__device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

/// Returns 2^x with an error of at most 2 units in the last place; subnormal results become zero.
__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace lyceum::ptx
