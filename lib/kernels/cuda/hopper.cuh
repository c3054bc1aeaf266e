#pragma once

#include <cstdint>
#include <type_traits>

// PTX of sm_90a as functions: barriers in shared memory, the tensor memory accelerator, warpgroups. Names and meanings
// are those of the PTX ISA. Called only in code for sm_90a, which is within `#ifdef LYCEUM_HOPPER`.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "for Hopper GPUs compile for sm_90a: plain sm_90 has no warpgroup products"
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LYCEUM_HOPPER 1
#endif

namespace lyceum::hopper {

/// Shows what this thread wrote to shared memory to TMA and to products of warpgroups.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A barrier in shared memory that counts arrivals and bytes of TMA loads; `address` is 8-byte aligned.
__device__ __forceinline__ void mbarrier_init(std::uint32_t address, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
}
/// Shows initialised barriers to the TMA unit.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence_async_proxy();
}
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t address) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}
/// At the barrier at the same address of block `block` of the cluster. Tells it that this thread's products have read
/// what they wait for; writes of this thread it need not show there.
__device__ __forceinline__ void mbarrier_arrive_at(std::uint32_t address, std::uint32_t block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(address),
      "r"(block)
      : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint32_t address, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}
/// An arrival as soon as this thread's copies (ptx::copy_async_16) so far are there. What they wrote is then seen by
/// who waits, and by their products after fence_async_proxy().
__device__ __forceinline__ void mbarrier_arrive_after_copies(std::uint32_t address) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
}
/// Waits for the end of the phase of this parity; a fresh barrier is in phase 0, and the one before it (1) has ended.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t address, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  }
}

/// Loads the box of a two-dimensional tensor map at (x, y), x along memory; elements outside the tensor come as zeros.
__device__ __forceinline__ void tma_load(std::uint32_t to, const void* map, std::uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

/// The same for the blocks of the cluster in `blocks`, a bit each: to the same place in all, and to their barriers.
__device__ __forceinline__ void tma_load_multicast(std::uint32_t to, const void* map, std::uint32_t barrier, int x,
                                                   int y, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}
/// Begins to write a box the other way; elements outside the tensor are left out. Reads shared memory and is waited for
/// as bulk_write().
__device__ __forceinline__ void tma_store(const void* map, std::uint32_t from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y)
               : "memory");
}

/// Begins to copy `bytes`, a multiple of 16, from shared to global memory, or to add them there as f32. Of shared
/// memory it reads what fence_async_proxy() has shown.
__device__ __forceinline__ void bulk_write(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
               "r"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_add(float* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
      "r"(from), "r"(bytes)
      : "memory");
}
/// This thread's copies from shared memory since the last call are one group.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until this thread's groups, but for the last `Pending`, have read all of shared memory that they copy; and until all
/// have written it too.
template <int Pending>
__device__ __forceinline__ void bulk_wait_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Four 8 x 8 matrices of 16-bit elements; lane 8 i + r names where row r of matrix i goes.
__device__ __forceinline__ void stmatrix(std::uint32_t address, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

/// Waits for all threads of the cluster that have not ended, and shows each what the others did before; by whole warps.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Orders this thread's other accesses to global memory and those of its copies in bulk.
__device__ __forceinline__ void fence_async_proxy_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// A number in global memory by which threads of the GPU's blocks follow each other: what happened before the release
/// is seen after the acquire of its value.
__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(from)) : "memory");
  return value;
}
__device__ __forceinline__ void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(value) : "memory");
}

/// Makes a two-dimensional tensor map in global memory describe `height` rows of `width` elements, `stride` bytes
/// apart.
__device__ __forceinline__ void tensor_map_replace(void* map, const void* data, std::uint32_t width,
                                                   std::uint32_t height, std::uint64_t stride) {
  const auto at = static_cast<std::uint64_t>(__cvta_generic_to_global(map));
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(at), "l"(data) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 0, %1;" ::"l"(at), "r"(width) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 1, %1;" ::"l"(at), "r"(height) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], 0, %1;" ::"l"(at), "l"(stride) : "memory");
}
/// Between the writes of a tensor map and its first use: by the writer, and by who uses it.
__device__ __forceinline__ void tensor_map_release() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
__device__ __forceinline__ void tensor_map_acquire(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

/// Registers a thread of this warpgroup: fewer for those that load, more for those that multiply.
template <int Count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/// Before the first wgmma that touches these registers, or shared memory written since.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `Pending` groups are under way.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Keeps the compiler from moving other uses of these registers across this place, while the tensor cores use them.
template <class Word, int Count, int Width>
__device__ __forceinline__ void pin(Word (&words)[Count][Width]) {
#pragma unroll
  for (int i = 0; i < Count * Width; ++i) {
    if constexpr (std::is_same_v<Word, float>) {
      asm volatile("" : "+f"(words[i / Width][i % Width])::"memory");
    } else {
      asm volatile("" : "+r"(words[i / Width][i % Width])::"memory");
    }
  }
}

}  // namespace lyceum::hopper
