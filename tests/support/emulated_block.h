#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "support/host_cuda/switch_stack.h"

#if LYCEUM_SANITIZE
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace lyceum::test {

/// A thread block of a GPU, emulated by one thread of the host. It makes missing synchronisation visible:
/// - Each GPU thread has a separate context and runs until it waits for its warp, its warpgroup or its block.
/// - Warps and warpgroups run one after another from barrier to barrier, in ascending or descending order. If the
///   result depends on the order, a barrier is missing.
/// - Asynchronous copies become visible only when the thread waits for them. Loads of boxes do so in ascending order;
///   in descending order they become visible at once.
/// - Shared memory initially contains NaN.
/// - A thread that arrives at a barrier of EmulatedHopper continues only when no other thread can proceed.
/// - The blocks of a cluster alternate; each proceeds as far ahead of the others as it can.
/// The instructions of the tensor core are implemented from the PTX manual.
class EmulatedBlock {
 public:
  using Cluster = std::vector<EmulatedBlock*>;
  enum class Order { ascending, descending };
  EmulatedBlock(int threads, int shared_bytes, Order order)
      : shared_(static_cast<std::size_t>(shared_bytes)),
        threads_(static_cast<std::size_t>(threads)),
        warps_(static_cast<std::size_t>(threads / warp)),
        groups_(static_cast<std::size_t>(threads / warpgroup)),
        order_(order) {
    require(threads % warp == 0, "{} threads are not a multiple of a warp", threads);
  }

  /// Runs `body(Machine)` for every thread of block `index` in a grid of `blocks` blocks. Throws what a thread throws.
  /// May be called again; shared memory then contains NaN again.
  template <class Machine, class Body>
  void run(Body&& body, int index = 0, int blocks = 1) {
    run_cluster<Machine>({this}, body, index, blocks);
  }
  /// Does the same for every thread of the consecutive blocks of a cluster. `index`: that of its first block.
  template <class Machine, class Body>
  static void run_cluster(const Cluster& cluster, Body&& body, int index, int blocks) {
    for (EmulatedBlock* block : cluster) {
      block->cluster_ = cluster;
      block->index_ = index++;
      block->blocks_ = blocks;
      block->body_ = [&body, block](int thread) { body(Machine(*block, thread)); };
      block->prepare();
    }
    schedule(cluster);
  }

 private:
  friend class EmulatedMachine;
  friend class EmulatedHopper;
  static constexpr int warp = 32, warpgroup = 128;
  static constexpr std::size_t stack_bytes = 128 << 10;

  /// Threads that execute an instruction together: a warp or a warpgroup.
  struct Team {
    std::vector<const void*> deposited;
    std::size_t arrived = 0;
    std::uint64_t meetings = 0;
  };
  /// The products that a warpgroup has begun and not waited for, by group of products (wgmma.commit_group). The last
  /// group is still open.
  using Products = std::vector<std::vector<std::function<void()>>>;
  struct Copy {
    int to, bytes;
    const void* from;  // null: zeros
  };
  /// A barrier as in [PTX ISA, mbarrier]: a phase ends after the announced number of arrivals and the expected number
  /// of bytes.
  struct Barrier {
    int announced = 0, missing = 0;
    std::int64_t bytes = 0;
    std::uint64_t phase = 0;
    std::vector<std::function<void()>> pending;  // loads and copies, executed when a thread waits for them

    /// True if the phase that ended last has this parity. A waiting thread can observe only the parity.
    bool ended(std::uint32_t parity) const { return ((phase - 1) & 1) == parity; }
    void settle() {
      if (missing > 0 || bytes != 0) return;
      missing = announced;
      ++phase;
    }
    void finish_loads() {
      for (const auto& load : std::exchange(pending, {})) load();
    }
  };
  struct Thread {
    std::unique_ptr<std::byte[]> stack;
    void* stack_pointer = nullptr;  // at its last switch
    std::vector<Copy> copies;
    std::vector<std::size_t> unpublished;  // 16-byte chunks that it has written for products, without a fence yet
    /// Pending copies from shared to global memory, and whether some may not be visible yet.
    std::vector<std::function<void()>> bulk;
    bool bulk_pending = false;
    std::set<const void*> acquired;  // tensor maps
    bool done = false, at_barrier = false, at_cluster_barrier = false;
    bool paused = false;  // until no other thread can proceed
    const Team* waits_for = nullptr;
    std::uint64_t awaited = 0;   // index of the meeting of `waits_for`
    Barrier* barrier = nullptr;  // the barrier that it waits for
    std::uint32_t parity = 0;
    void* fake_stack = nullptr;
  };

  /// The first function on the stack of each thread.
  static void start() {
    EmulatedBlock* block = entered_;
    block->finish_switch(nullptr);
    try {
      block->body_(block->current_);
    } catch (...) {
      block->error_ = std::current_exception();
    }
    block->threads_[static_cast<std::size_t>(block->current_)].done = true;
    block->leave(true);
  }

  void finish_switch([[maybe_unused]] void* fake_stack) {
#if LYCEUM_SANITIZE
    __sanitizer_finish_switch_fiber(fake_stack, &host_stack_, &host_stack_bytes_);
#endif
  }
  /// Switches to the scheduler. `for_ever`: the thread has ended.
  void leave([[maybe_unused]] bool for_ever) {
    Thread& thread = threads_[static_cast<std::size_t>(current_)];
#if LYCEUM_SANITIZE
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &thread.fake_stack, host_stack_, host_stack_bytes_);
#endif
    lyceum_switch_stack(&thread.stack_pointer, scheduler_);
    finish_switch(thread.fake_stack);
  }
  void enter(int index) {
    entered_ = this;
    current_ = index;
    Thread& thread = threads_[static_cast<std::size_t>(index)];
#if LYCEUM_SANITIZE
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, thread.stack.get(), stack_bytes);
#endif
    lyceum_switch_stack(&scheduler_, thread.stack_pointer);
#if LYCEUM_SANITIZE
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  void prepare();
  bool run_warp(int index);
  bool run_group(int index);
  bool run_block();
  bool release_barrier();
  bool resume();
  void check_ended() const;
  static void schedule(const Cluster& cluster);
  bool ended() const { return std::ranges::all_of(threads_, &Thread::done); }

  /// Gives `mine` to the other threads of the team and waits for all of them. The last thread to arrive calls
  /// meet(values of all threads, in order) before any thread continues.
  template <class Meet>
  void meet(Team& team, const void* mine, Meet&& meet) {
    const auto index = static_cast<std::size_t>(current_);
    team.deposited[index % team.deposited.size()] = mine;
    Thread& thread = threads_[index];
    thread.waits_for = &team;
    thread.awaited = team.meetings + 1;
    if (++team.arrived == team.deposited.size()) {
      meet(team.deposited);
      team.arrived = 0;
      ++team.meetings;
    } else {
      leave(false);
    }
  }
  template <class Meet>
  void meet_warp(const void* mine, Meet&& with) {
    meet(warps_[static_cast<std::size_t>(current_ / warp)], mine, with);
  }
  template <class Meet>
  void meet_group(const void* mine, Meet&& with) {
    meet(groups_[static_cast<std::size_t>(current_ / warpgroup)], mine, with);
  }

  std::vector<std::byte> shared_;
  std::vector<Thread> threads_;
  std::vector<Team> warps_, groups_;
  std::vector<Products> products_;   // by warpgroup
  std::map<int, Barrier> barriers_;  // by offset in shared memory
  /// State of 1024 bytes of shared memory: the number of the last load of a box into them, and how many loads are
  /// pending.
  struct Loads {
    std::uint64_t last = 0;
    int pending = 0;
  };
  std::vector<Loads> loads_of_;
  std::uint64_t loads_ = 0;
  /// For each 16-byte chunk of shared memory: the number of the copy that wrote it, or 0 if its writer has published
  /// it. For each warpgroup: the number of the last copy that it has published.
  std::vector<std::uint64_t> copied_, published_;
  std::uint64_t copies_ = 0;
  Order order_;
  int index_ = 0, blocks_ = 1;
  Cluster cluster_;
  std::function<void(int)> body_;
  void* scheduler_ = nullptr;                       // stack pointer of the scheduler while a thread runs
  static inline EmulatedBlock* entered_ = nullptr;  // the block of the thread that runs
#if LYCEUM_SANITIZE
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
#endif
  int current_ = 0;
  std::exception_ptr error_;
};

inline void EmulatedBlock::prepare() {
  std::ranges::fill(shared_, std::byte{0xff});  // NaN in any type
  error_ = nullptr;
  for (Team& team : warps_) team = {std::vector<const void*>(warp)};
  for (Team& team : groups_) team = {std::vector<const void*>(warpgroup)};
  products_.assign(groups_.size(), Products(1));
  barriers_.clear();
  loads_of_.assign(shared_.size() / 1024 + 1, {});
  loads_ = 0;
  copied_.assign(shared_.size() / 16 + 1, 0);
  published_.assign(groups_.size(), 0);
  copies_ = 0;
  std::size_t staggered = 0;  // otherwise the ends of all stacks would map to the same few lines of the cache
  for (Thread& thread : threads_) {
    if (!thread.stack) thread.stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    thread.done = thread.at_barrier = thread.at_cluster_barrier = thread.paused = false;
    thread.waits_for = nullptr;
    thread.barrier = nullptr;
    thread.unpublished.clear();
    thread.acquired.clear();
    thread.bulk.clear();
    thread.bulk_pending = false;
    thread.fake_stack = nullptr;
#if LYCEUM_SANITIZE
    ASAN_UNPOISON_MEMORY_REGION(thread.stack.get(), stack_bytes);  // of frames that were left and not returned from
#endif
    std::byte* const top = thread.stack.get() + stack_bytes - staggered++ % 32 * 128;
    thread.stack_pointer = host_cuda::prepare_stack(top, &EmulatedBlock::start);
  }
}

/// Runs each thread of the warp that can proceed. Returns true if any could.
inline bool EmulatedBlock::run_warp(int index) {
  bool moved = false;
  for (int lane = 0; lane < warp; ++lane) {
    Thread& thread = threads_[static_cast<std::size_t>(index * warp + lane)];
    if (thread.done || thread.paused || thread.at_barrier || thread.at_cluster_barrier) continue;
    if (thread.barrier && !thread.barrier->ended(thread.parity)) thread.barrier->finish_loads();
    if (thread.barrier && !thread.barrier->ended(thread.parity)) continue;
    if (thread.waits_for && thread.awaited > thread.waits_for->meetings) continue;
    enter(index * warp + lane);
    if (error_) std::rethrow_exception(error_);
    moved = true;
  }
  return moved;
}

/// Runs the warps of a warpgroup until none can proceed without others. Returns true if any thread ran.
inline bool EmulatedBlock::run_group(int index) {
  const int first = 4 * index, count = std::min(4, static_cast<int>(warps_.size()) - first);
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < count; ++i) {
      while (run_warp(first + (order_ == Order::ascending ? i : count - 1 - i))) moved = any = true;
    }
  }
  return any;
}

/// Runs all warps until none can proceed without other blocks. Returns true if any thread ran.
inline bool EmulatedBlock::run_block() {
  const int count = (static_cast<int>(warps_.size()) + 3) / 4;
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < count; ++i) moved |= run_group(order_ == Order::ascending ? i : count - 1 - i);
    if (!moved) moved = release_barrier();
    any |= moved;
  }
  return any;
}

/// Releases the block's barrier if all threads wait at it. Returns true if so.
inline bool EmulatedBlock::release_barrier() {
  if (!std::ranges::all_of(threads_, &Thread::at_barrier)) return false;
  for (Thread& thread : threads_) thread.at_barrier = false;
  return true;
}

/// Resumes paused threads. Returns true if there were any.
inline bool EmulatedBlock::resume() {
  bool any = false;
  for (Thread& thread : threads_) any |= std::exchange(thread.paused, false);
  return any;
}

/// Runs the blocks in turn; each proceeds as far as it can before the next one runs.
inline void EmulatedBlock::schedule(const Cluster& cluster) {
  Cluster turns = cluster;
  if (cluster.front()->order_ == Order::descending) std::ranges::reverse(turns);
  for (;;) {
    for (bool moved = true; moved;) {
      moved = false;
      for (EmulatedBlock* block : turns) moved |= block->run_block();
    }
    if (std::ranges::any_of(turns, &EmulatedBlock::resume)) continue;
    if (std::ranges::all_of(turns, &EmulatedBlock::ended)) break;
    for (EmulatedBlock* block : turns) {  // [PTX ISA, barrier.cluster]: waits for all threads that have not ended
      for (Thread& thread : block->threads_) {
        require(thread.done || thread.at_cluster_barrier, "threads wait at a warp or barrier that others never reach");
        thread.at_cluster_barrier = false;
      }
    }
  }
  for (const EmulatedBlock* block : cluster) block->check_ended();
}

inline void EmulatedBlock::check_ended() const {
  for (const Thread& thread : threads_) {
    require(thread.copies.empty() && !thread.bulk_pending, "a thread ended without waiting for its copies");
  }
  for (const auto& [offset, barrier] : barriers_)
    require(barrier.pending.empty(), "the block ended without waiting for its loads");
  for (const Products& products : products_) {
    require(products.size() == 1 && products[0].empty(), "the block ended without waiting for its products");
  }
}

}  // namespace lyceum::test
