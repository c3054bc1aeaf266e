#pragma once

#include <cstdint>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/machine.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace lyceum::cuda {

/// The operations of a thread of a Hopper GPU (sm_90a), in addition to Machine: asynchronous products of warpgroups
/// (128 threads), barriers that count arrivals and bytes, and TMA loads and stores of boxes. Operands in shared memory
/// are given as descriptors (warpgroup.cuh), barriers as their byte offsets. [PTX ISA, wgmma.mma_async, mbarrier,
/// cp.async.bulk.tensor]
class HopperMachine : public Machine {
 public:
  using Machine::Machine;

  /// Index of this block in the grid, and the number of blocks. Blocks of a cluster, if the launch has clusters, have
  /// consecutive indices.
  __device__ __forceinline__ std::int32_t block_index() const { return static_cast<std::int32_t>(blockIdx.x); }
  __device__ __forceinline__ std::int32_t blocks() const { return static_cast<std::int32_t>(gridDim.x); }
  /// Returns `value`, which must be equal in all lanes of a warp. The compiler can then keep it, and values derived
  /// from it, in one uniform register per warp.
  __device__ __forceinline__ int uniform(int value) const { return __shfl_sync(0xffffffffu, value, 0); }
  /// Address of shared memory at `offset`, for descriptors.
  __device__ __forceinline__ std::uint32_t shared_address(int offset) const { return address(offset); }
  /// Writes to shared memory. Products and bulk copies may read it after publish_copies().
  template <class T>
  __device__ __forceinline__ void write_shared(int to, const T& value) const {
    *shared<T>(to) = value;
  }
  /// Makes what this thread's copies and write_shared() wrote visible to products, and what write_shared() wrote
  /// visible to bulk copies.
  __device__ __forceinline__ void publish_copies() const { hopper::fence_async_proxy(); }
  /// Orders earlier writes to registers before the products that begin after it, which may read them.
  template <class... Operands>
  __device__ __forceinline__ void begin_products(Operands&... operands) const {
    (pin(operands), ...);
    hopper::wgmma_fence();
  }
  /// Makes the products since the last call one group.
  __device__ __forceinline__ void end_group() const { hopper::wgmma_commit(); }
  /// Waits until at most the last `pending` groups are incomplete. `results` are the registers of completed groups,
  /// which may be read afterwards. The compiler does not access them between begin_products() and this call.
  template <int pending, class... Results>
  __device__ __forceinline__ void wait_products(Results&... results) const {
    hopper::wgmma_wait<pending>();
    (pin(results), ...);
  }

  /// Makes the compiler compute `value`, which is at least 0 or NaN, before the next wait_products(). Otherwise it
  /// would move code whose result is needed later behind that wait, where no products run concurrently. It does not
  /// move stores across the wait, so this is a store that depends on `value` and never happens.
  __device__ __forceinline__ void compute_before_wait(float value) const {
    asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;\n}\n" ::"f"(value),
                 "r"(address(0))
                 : "memory");
  }

  /// Makes the compiler compute `values` here rather than where they are used.
  template <class Values>
  __device__ __forceinline__ void compute_here(Values& values) const {
    pin(values);
  }

  /// Returns `value` and hides its origin from the compiler, so that values derived from it are recomputed instead of
  /// kept in registers.
  __device__ __forceinline__ int hide_origin(int value) const {
    asm volatile("" : "+r"(value));
    return value;
  }

  /// Begins d = a · b, or d += a · b if `add`, for operands a [64, 16] and b [16, columns] in shared memory. The lines
  /// of an operand run along the 16 indices that are summed over. With `a_across`, the lines of a run along its 64
  /// rows; with `b_across`, those of b along its columns. Elements of d beyond `columns` columns are unchanged.
  template <int columns, bool a_across, bool b_across, int count>
  __device__ __forceinline__ void multiply_shared(float (&d)[count][4], std::uint64_t a, std::uint64_t b,
                                                  bool add) const {
    hopper::wgmma<columns, a_across, b_across>(flat(d), a, b, static_cast<int>(add));
  }
  /// Begins d += a · b for a [64, 16] in registers and b [16, columns] in shared memory, stored by rows.
  template <int count>
  __device__ __forceinline__ void multiply_words(float (&d)[count][4], const std::uint32_t (&a)[4],
                                                 std::uint64_t b) const {
    hopper::wgmma_words<8 * count>(flat(d), a, b);
  }

  /// Initialises a barrier, whose phases complete after `arrivals` arrivals.
  __device__ __forceinline__ void initialise_barrier(int barrier, int arrivals) const {
    hopper::mbarrier_init(address(barrier), static_cast<std::uint32_t>(arrivals));
  }
  /// Makes initialised barriers visible to TMA. For the other threads, sync() does so.
  __device__ __forceinline__ void publish_barriers() const { hopper::fence_barrier_init(); }
  __device__ __forceinline__ void arrive(int barrier) const { hopper::mbarrier_arrive(address(barrier)); }
  /// Arrives at the barrier of block `block` of the cluster, to signal that this block's products have read a stage
  /// that `block` loads.
  __device__ __forceinline__ void arrive_at(int barrier, int block) const {
    hopper::mbarrier_arrive_at(address(barrier), static_cast<std::uint32_t>(block));
  }
  /// Waits for the threads of all blocks of the cluster. Another block's barriers and shared memory may be used only
  /// after the first call and before the last one, since blocks may exit after it.
  __device__ __forceinline__ void sync_cluster() const {
    __syncwarp();
    hopper::cluster_sync();
  }
  /// Arrives at a barrier and increases by `bytes` the number of bytes that must be loaded before the phase completes.
  __device__ __forceinline__ void arrive_expecting(int barrier, int bytes) const {
    hopper::mbarrier_arrive_expect(address(barrier), static_cast<std::uint32_t>(bytes));
  }
  /// Arrives at a barrier once this thread's copies so far are complete.
  __device__ __forceinline__ void arrive_after_copies(int barrier) const {
    hopper::mbarrier_arrive_after_copies(address(barrier));
  }
  /// Waits until the phase of this parity has completed. A new barrier is in phase 0; the phase before that, of parity
  /// 1, counts as completed.
  __device__ __forceinline__ void wait_barrier(int barrier, std::uint32_t parity) const {
    hopper::mbarrier_wait(address(barrier), parity);
  }

  /// Must be called before a thread's first load with a tensor map that the device wrote.
  __device__ __forceinline__ void acquire_map(const void* map) const { hopper::tensor_map_acquire(map); }
  /// Begins loading the box at (x, y) of a two-dimensional tensor map to shared memory; x runs along memory. `barrier`
  /// counts its bytes.
  __device__ __forceinline__ void load_box(int to, const void* map, int barrier, int x, int y) const {
    hopper::tma_load(address(to), map, address(barrier), x, y);
  }
  /// load_box() for the first `cluster` blocks of the cluster: writes to the same offset in each. In each, the barrier
  /// at the same offset counts the bytes, and must expect them (arrive_expecting()).
  template <int cluster>
  __device__ __forceinline__ void load_box_for_all(int to, const void* map, int barrier, int x, int y) const {
    if constexpr (cluster == 1) {
      load_box(to, map, barrier, x, y);
    } else {
      constexpr auto blocks = static_cast<std::uint16_t>((1 << cluster) - 1);
      hopper::tma_load_multicast(address(to), map, address(barrier), x, y, blocks);
    }
  }
  /// Begins storing a box from shared memory, as one group for wait_bulk_reads(). Elements outside the tensor map are
  /// skipped.
  __device__ __forceinline__ void begin_store_box(const void* map, int from, int x, int y) const {
    hopper::tma_store(map, address(from), x, y);
    hopper::bulk_commit();
  }
  /// Writes four 8 x 8 matrices of 16-bit elements, in registers as products leave them, to shared memory like
  /// write_shared(). Lane 8 i + r passes the offset of row r of matrix i.
  __device__ __forceinline__ void store_matrices(int to, const std::uint32_t (&words)[4]) const {
    hopper::stmatrix(address(to), words);
  }

  /// Begins copying `bytes` of shared memory to global memory, or adding them there as f32. Addresses and size must be
  /// multiples of 16 bytes.
  __device__ __forceinline__ void begin_bulk_write(float* to, int from, int bytes) const {
    hopper::bulk_write(to, address(from), static_cast<std::uint32_t>(bytes));
    hopper::bulk_commit();
  }
  __device__ __forceinline__ void begin_bulk_add(float* to, int from, int bytes) const {
    hopper::bulk_add(to, address(from), static_cast<std::uint32_t>(bytes));
    hopper::bulk_commit();
  }
  /// wait_bulk_reads() waits until all but the last `pending` bulk copies and box stores of this thread have read their
  /// shared memory. wait_bulk() waits until all of them have written their results.
  template <int pending = 0>
  __device__ __forceinline__ void wait_bulk_reads() const {
    hopper::bulk_wait_reads<pending>();
  }
  __device__ __forceinline__ void wait_bulk() const { hopper::bulk_wait(); }

  /// Adds 1 to a counter in global memory, atomically, and returns what it was before.
  __device__ __forceinline__ std::uint32_t count_up(std::uint32_t* counter) const { return atomicAdd(counter, 1u); }
  /// Waits until other blocks have completed turns 0 to `turn` - 1 of `turns`. Afterwards this thread and its bulk
  /// copies see the bulk copies of those turns. To avoid a deadlock, those blocks must be able to finish without this
  /// one.
  __device__ __forceinline__ void wait_turn(const std::uint32_t* turns, int turn) const {
    while (hopper::load_acquire(turns) != static_cast<std::uint32_t>(turn)) {
    }
    hopper::fence_async_proxy_global();
  }
  /// Completes turn `turn`. The thread's bulk copies of this turn must have been awaited with wait_bulk().
  __device__ __forceinline__ void pass_turn(std::uint32_t* turns, int turn) const {
    hopper::fence_async_proxy_global();
    hopper::store_release(turns, static_cast<std::uint32_t>(turn) + 1);
  }

  /// Change the number of registers of each thread of this warpgroup to `count`: fewer for loading warpgroups, so that
  /// multiplying ones can have more. All warps of the warpgroup must call it.
  template <int count>
  __device__ __forceinline__ void decrease_registers() const {
    hopper::decrease_registers<count>();
  }
  template <int count>
  __device__ __forceinline__ void increase_registers() const {
    hopper::increase_registers<count>();
  }

  /// Reads memory that no thread writes during the kernel, through the read-only cache.
  template <class T>
  __device__ __forceinline__ T read_only(const T* from) const {
    if constexpr (sizeof(T) == sizeof(uint4)) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
      return {words.x, words.y, words.z, words.w};
    } else {
      return __ldg(from);
    }
  }
  /// Prefetches a line of global memory to the L2 cache.
  __device__ __forceinline__ void prefetch(const void* from) const {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  }
  /// Reads, or writes, a T with one access. The address must be a multiple of sizeof(T).
  template <class T>
  __device__ __forceinline__ T read(const void* from) const {
    return *static_cast<const T*>(from);
  }
  template <class T>
  __device__ __forceinline__ void write(void* to, const T& value) const {
    *static_cast<T*>(to) = value;
  }

 private:
  template <class Operand>
  static __device__ __forceinline__ void pin(Operand& operand) {
#pragma unroll
    for (auto& tile : operand.at) hopper::pin(tile);
  }
  template <int count>
  static __device__ __forceinline__ float (&flat(float (&d)[count][4]))[4 * count] {
    return reinterpret_cast<float(&)[4 * count]>(d);
  }
};

}  // namespace lyceum::cuda
