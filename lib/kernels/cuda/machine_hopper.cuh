#pragma once

#include <cstdint>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/machine.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace lyceum::cuda {

/// A Hopper GPU (sm_90a): products of warpgroups of 128 threads, which run while the threads do other work, barriers
/// that count arrivals and bytes, and loads of boxes. Operands in shared memory are named by descriptors
/// (warpgroup.cuh), barriers by their offsets. [PTX ISA, wgmma.mma_async, mbarrier, cp.async.bulk.tensor]
class HopperMachine : public Machine {
 public:
  using Machine::Machine;

  /// This block's place in the grid, and how many there are. Neighbours are a cluster, if the launch has them.
  __device__ __forceinline__ std::int32_t block_index() const { return static_cast<std::int32_t>(blockIdx.x); }
  __device__ __forceinline__ std::int32_t blocks() const { return static_cast<std::int32_t>(gridDim.x); }
  /// `value`, which is the same in all lanes of a warp: the compiler keeps it, and what follows from it, once for a
  /// warp.
  __device__ __forceinline__ int uniform(int value) const { return __shfl_sync(0xffffffffu, value, 0); }
  __device__ __forceinline__ std::uint32_t shared_address(int offset) const { return address(offset); }
  /// Writes to shared memory what products, and copies in bulk, read after publish_copies().
  template <class T>
  __device__ __forceinline__ void write_shared(int to, const T& value) const {
    *shared<T>(to) = value;
  }
  /// Lets products read what this thread's copies and write_shared() wrote, and copies in bulk the latter.
  __device__ __forceinline__ void publish_copies() const { hopper::fence_async_proxy(); }
  /// Registers written before this may be read by products that begin after it.
  template <class... Operands>
  __device__ __forceinline__ void begin_products(Operands&... operands) const {
    (pin(operands), ...);
    hopper::wgmma_fence();
  }
  /// The products since the last call are one group.
  __device__ __forceinline__ void end_group() const { hopper::wgmma_commit(); }
  /// Until at most the last `pending` groups are under way; of `results`, what those before them computed is there
  /// then. The compiler leaves `results` alone between begin_products() and this.
  template <int pending, class... Results>
  __device__ __forceinline__ void wait_products(Results&... results) const {
    hopper::wgmma_wait<pending>();
    (pin(results), ...);
  }

  /// Has `value`, which is at least 0 or NaN, computed before the next wait_products(). The compiler would put what
  /// only later work needs behind that wait, where no products run beside it; it moves no store across, and here is one
  /// that depends on `value` and never happens.
  __device__ __forceinline__ void compute_before_wait(float value) const {
    asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;\n}\n" ::"f"(value),
                 "r"(address(0))
                 : "memory");
  }

  /// Has `values` computed here, not later where they are used.
  template <class Values>
  __device__ __forceinline__ void compute_here(Values& values) const {
    pin(values);
  }

  /// `value`, which the compiler knows nothing about before: what follows from it is computed anew, not kept in
  /// registers.
  __device__ __forceinline__ int known_here(int value) const {
    asm volatile("" : "+r"(value));
    return value;
  }

  /// Begins d = a · b, or d += if `add`, for [64, 16] and [16, columns] in shared memory: their lines run along the 16,
  /// or along the rows or columns where `a_across` or `b_across`. d may have more columns, which stay as they are.
  template <int columns, bool a_across, bool b_across, int count>
  __device__ __forceinline__ void multiply_shared(float (&d)[count][4], std::uint64_t a, std::uint64_t b,
                                                  bool add) const {
    hopper::wgmma<columns, a_across, b_across>(flat(d), a, b, static_cast<int>(add));
  }
  /// Begins d += a · b for a [64, 16] in registers and b [16, columns] in shared memory, by rows.
  template <int count>
  __device__ __forceinline__ void multiply_words(float (&d)[count][4], const std::uint32_t (&a)[4],
                                                 std::uint64_t b) const {
    hopper::wgmma_words<8 * count>(flat(d), a, b);
  }

  __device__ __forceinline__ void begin_barrier(int barrier, int arrivals) const {
    hopper::mbarrier_init(address(barrier), static_cast<std::uint32_t>(arrivals));
  }
  /// Shows barriers that have begun to loads of boxes; to other threads sync() does.
  __device__ __forceinline__ void publish_barriers() const { hopper::fence_barrier_init(); }
  __device__ __forceinline__ void arrive(int barrier) const { hopper::mbarrier_arrive(address(barrier)); }
  /// Arrives at the barrier of block `block` of the cluster, when products have read what that block loads anew.
  __device__ __forceinline__ void arrive_at(int barrier, int block) const {
    hopper::mbarrier_arrive_at(address(barrier), static_cast<std::uint32_t>(block));
  }
  /// Waits for the threads of all blocks of the cluster. Before it nobody may use another block's barriers or memory,
  /// and after the last one nobody may either: blocks end.
  __device__ __forceinline__ void sync_cluster() const {
    __syncwarp();
    hopper::cluster_sync();
  }
  /// Arrives, and has the phase last until `bytes` more were loaded.
  __device__ __forceinline__ void arrive_expecting(int barrier, int bytes) const {
    hopper::mbarrier_arrive_expect(address(barrier), static_cast<std::uint32_t>(bytes));
  }
  /// Arrives when this thread's copies so far have.
  __device__ __forceinline__ void arrive_after_copies(int barrier) const {
    hopper::mbarrier_arrive_after_copies(address(barrier));
  }
  /// Waits for the end of the phase of this parity; a fresh barrier is in phase 0, and the one before it (1) has ended.
  __device__ __forceinline__ void wait_barrier(int barrier, std::uint32_t parity) const {
    hopper::mbarrier_wait(address(barrier), parity);
  }

  /// Before a thread's first load by a map that the device wrote.
  __device__ __forceinline__ void acquire_map(const void* map) const { hopper::tensor_map_acquire(map); }
  /// Begins to load the box at (x, y), x along memory, of a two-dimensional tensor map; `barrier` counts its bytes.
  __device__ __forceinline__ void load_box(int to, const void* map, int barrier, int x, int y) const {
    hopper::tma_load(address(to), map, address(barrier), x, y);
  }
  /// The same for the first `cluster` blocks of the cluster: to the same place of each, counted by the barrier of each.
  template <int cluster>
  __device__ __forceinline__ void load_box_for_all(int to, const void* map, int barrier, int x, int y) const {
    if constexpr (cluster == 1) {
      load_box(to, map, barrier, x, y);
    } else {
      constexpr auto blocks = static_cast<std::uint16_t>((1 << cluster) - 1);
      hopper::tma_load_multicast(address(to), map, address(barrier), x, y, blocks);
    }
  }
  /// Begins to write a box of shared memory, leaving out what is outside the map.
  __device__ __forceinline__ void begin_store_box(const void* map, int from, int x, int y) const {
    hopper::tma_store(map, address(from), x, y);
    hopper::bulk_commit();
  }
  /// Writes four 8 x 8 matrices of 16-bit elements, in registers as products leave them, to shared memory, as
  /// write_shared(); lane 8 i + r names where row r of matrix i goes.
  __device__ __forceinline__ void store_matrices(int to, const std::uint32_t (&words)[4]) const {
    hopper::stmatrix(address(to), words);
  }

  /// Begins to copy `bytes` of shared memory to global memory, or to add them there as f32: all 16-byte aligned.
  __device__ __forceinline__ void begin_bulk_write(float* to, int from, int bytes) const {
    hopper::bulk_write(to, address(from), static_cast<std::uint32_t>(bytes));
    hopper::bulk_commit();
  }
  __device__ __forceinline__ void begin_bulk_add(float* to, int from, int bytes) const {
    hopper::bulk_add(to, address(from), static_cast<std::uint32_t>(bytes));
    hopper::bulk_commit();
  }
  /// Until this thread's copies in bulk and stores, but for the last `pending`, have read shared memory; until all are
  /// there.
  template <int pending = 0>
  __device__ __forceinline__ void wait_bulk_reads() const {
    hopper::bulk_wait_reads<pending>();
  }
  __device__ __forceinline__ void wait_bulk() const { hopper::bulk_wait(); }

  /// Waits until other blocks have passed on turns 0 to `turn` - 1 of `turns`. Then this thread, and its copies in
  /// bulk, see what was copied in bulk before. Whoever waits relies on those blocks to end without this one.
  __device__ __forceinline__ void wait_turn(const std::uint32_t* turns, int turn) const {
    while (hopper::load_acquire(turns) != static_cast<std::uint32_t>(turn)) {
    }
    hopper::fence_async_proxy_global();
  }
  /// Ends turn `turn`, in which this thread's copies in bulk have been waited for.
  __device__ __forceinline__ void pass_turn(std::uint32_t* turns, int turn) const {
    hopper::fence_async_proxy_global();
    hopper::store_release(turns, static_cast<std::uint32_t>(turn) + 1);
  }

  /// Registers of each thread of this warpgroup from now on.
  template <int count>
  __device__ __forceinline__ void give_registers() const {
    hopper::give_registers<count>();
  }
  template <int count>
  __device__ __forceinline__ void take_registers() const {
    hopper::take_registers<count>();
  }

  /// From memory that nobody writes to meanwhile.
  template <class T>
  __device__ __forceinline__ T read_only(const T* from) const {
    if constexpr (sizeof(T) == sizeof(uint4)) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
      return {words.x, words.y, words.z, words.w};
    } else {
      return __ldg(from);
    }
  }
  __device__ __forceinline__ void prefetch(const void* from) const {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  }
  /// As many bytes as T has, at once; aligned to them.
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
