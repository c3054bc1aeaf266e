#pragma once

#include <cstdint>
#include <type_traits>

// Wrappers of PTX instructions of sm_90a: barriers in shared memory, the tensor memory accelerator (TMA), warpgroups.
// Names and semantics are those of the PTX ISA. Only code within `#ifdef LYCEUM_HOPPER` may call them.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "for Hopper GPUs compile for sm_90a: plain sm_90 has no warpgroup products"
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LYCEUM_HOPPER 1
#endif

namespace lyceum::hopper {

/// Makes this thread's writes to shared memory visible to TMA and wgmma (the async proxy).
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Initialises a barrier in shared memory, which counts arrivals and bytes of TMA loads. `address` is 8-byte aligned.
__device__ __forceinline__ void mbarrier_init(std::uint32_t address, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to TMA and to the cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence_async_proxy();
}
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t address) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}
/// Arrives at the barrier at the same address in block `block` of the cluster. It signals that this thread's products
/// have finished reading; it need not make writes of this thread visible there.
__device__ __forceinline__ void mbarrier_arrive_at(std::uint32_t address, std::uint32_t block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(address),
      "r"(block)
      : "memory");
}
/// Arrives at a barrier and increases by `bytes` the number of bytes that its phase waits for.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint32_t address, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}
/// Arrives at a barrier as soon as this thread's earlier copies (ptx::copy_async_16) are complete. Threads that wait
/// for the barrier then see what the copies wrote; their products see it after fence_async_proxy().
__device__ __forceinline__ void mbarrier_arrive_after_copies(std::uint32_t address) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
}
/// Waits until the phase of this parity has completed. A new barrier is in phase 0; the phase before that, of parity 1,
/// counts as completed.
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

/// Begins loading the box at (x, y) of a two-dimensional tensor map; x runs along memory. Elements outside the tensor
/// become zeros. `barrier` counts the bytes.
__device__ __forceinline__ void tma_load(std::uint32_t to, const void* map, std::uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

/// tma_load() for all blocks of the cluster whose bit is set in `blocks`: writes to the same address in each, and
/// signals the barrier at the same address in each.
__device__ __forceinline__ void tma_load_multicast(std::uint32_t to, const void* map, std::uint32_t barrier, int x,
                                                   int y, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}
/// Begins storing a box from shared memory; elements outside the tensor are skipped. Reads shared memory and is awaited
/// like bulk_write().
__device__ __forceinline__ void tma_store(const void* map, std::uint32_t from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y)
               : "memory");
}

/// Begins copying `bytes`, a multiple of 16, from shared to global memory; bulk_add() adds them there as f32. Writes of
/// threads to shared memory must be made visible with fence_async_proxy() before.
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
/// Makes this thread's copies from shared memory since the last call one group.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// bulk_wait_reads() waits until all but the last `Pending` groups of this thread have read their shared memory.
/// bulk_wait() waits until all groups have also written their results.
template <int Pending>
__device__ __forceinline__ void bulk_wait_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Stores four 8 x 8 matrices of 16-bit elements. Lane 8 i + r passes the address of row r of matrix i.
__device__ __forceinline__ void stmatrix(std::uint32_t address, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

/// Waits for all threads of the cluster that have not exited, and makes their earlier writes visible to each other.
/// Whole warps must call it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Orders this thread's ordinary accesses to global memory with respect to its bulk copies.
__device__ __forceinline__ void fence_async_proxy_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// Acquire and release of a number in global memory, by which blocks synchronise: what happened before the release is
/// visible after an acquire that reads its value.
__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(from)) : "memory");
  return value;
}
__device__ __forceinline__ void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(value) : "memory");
}

/// Replaces address, extents and stride in a two-dimensional tensor map in global memory: `height` rows of `width`
/// elements, `stride` bytes apart.
__device__ __forceinline__ void tensor_map_replace(void* map, const void* data, std::uint32_t width,
                                                   std::uint32_t height, std::uint64_t stride) {
  const auto at = static_cast<std::uint64_t>(__cvta_generic_to_global(map));
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(at), "l"(data) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 0, %1;" ::"l"(at), "r"(width) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 1, %1;" ::"l"(at), "r"(height) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], 0, %1;" ::"l"(at), "l"(stride) : "memory");
}
/// Fences between writing a tensor map and its first use: the writer releases, each user acquires.
__device__ __forceinline__ void tensor_map_release() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
__device__ __forceinline__ void tensor_map_acquire(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

/// Change the number of registers per thread of this warpgroup to `Count`. Loading warpgroups decrease it, so that
/// multiplying ones can increase it. All warps of the warpgroup must execute it.
template <int Count>
__device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/// Must be executed before the first wgmma that uses these registers, or shared memory written since.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Makes the products since the last call one group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `Pending` groups of products are incomplete.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Prevents the compiler from moving other accesses of these registers across this point, while the tensor cores use
/// them.
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
