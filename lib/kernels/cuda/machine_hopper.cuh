#pragma once

#include <cstdint>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/machine.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace lyceum::cuda {

/// A Hopper GPU (sm_90a): products of warpgroups of 128 threads, which run while the threads do other work.
/// Operands in shared memory are named by descriptors (warpgroup.cuh). [PTX ISA, wgmma.mma_async]
class HopperMachine : public Machine {
 public:
  using Machine::Machine;

  __device__ __forceinline__ std::uint32_t shared_address(int offset) const { return address(offset); }
  /// Lets products read what this thread's copies wrote.
  __device__ __forceinline__ void publish_copies() const { hopper::fence_async_proxy(); }
  /// Registers written before this may be read by products that begin after it.
  template <class... Operands>
  __device__ __forceinline__ void begin_products(Operands&... operands) const {
    (hopper::pin(operands.at[0]), ...);
    hopper::wgmma_fence();
  }
  /// The products since the last call are one group.
  __device__ __forceinline__ void end_group() const { hopper::wgmma_commit(); }
  /// Until at most the last `pending` groups are under way; what `results` holds is there then.
  template <int pending, class... Results>
  __device__ __forceinline__ void wait_products(Results&... results) const {
    hopper::wgmma_wait<pending>();
    (hopper::pin(results.at[0]), ...);
  }

  /// Has `value`, which is at least 0 or NaN, computed before the next wait_products(). The compiler would put what
  /// only later work needs behind that wait, where no products run beside it; it does not move stores across, and a
  /// store that no value leads to keeps this one there.
  __device__ __forceinline__ void compute_before_wait(float value) const {
    asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;\n}\n" ::"f"(value),
                 "r"(address(0))
                 : "memory");
  }

  /// Begins d = a · bᵀ, or d += if `add`, for [64, 16] and [columns, 16] in shared memory, both by rows.
  template <int count>
  __device__ __forceinline__ void multiply_shared(float (&d)[count][4], std::uint64_t a, std::uint64_t b,
                                                  bool add) const {
    hopper::wgmma<8 * count, false, false>(flat(d), a, b, static_cast<int>(add));
  }
  /// Begins d += a · b for a [64, 16] in registers and b [16, columns] in shared memory, by rows.
  template <int count>
  __device__ __forceinline__ void multiply_words(float (&d)[count][4], const std::uint32_t (&a)[4],
                                                 std::uint64_t b) const {
    hopper::wgmma_words<8 * count>(flat(d), a, b);
  }

 private:
  template <int count>
  static __device__ __forceinline__ float (&flat(float (&d)[count][4]))[4 * count] {
    return reinterpret_cast<float(&)[4 * count]>(d);
  }
};

}  // namespace lyceum::cuda
