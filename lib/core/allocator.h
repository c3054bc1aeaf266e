#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/free_blocks.h"
#include "core/memory_kind.h"
#include "core/memory_room.h"
#include "core/memory_source.h"

namespace lyceum {

/// Bytes that an Allocator has handed out (in use) and bytes that it has taken from its source (held). Of a block of
/// host memory, only what has been handed out at least once is held, since only that takes memory.
struct MemoryUse {
  std::array<std::size_t, memory_kinds> in_use{};  // bytes, by kind
  std::array<std::size_t, memory_kinds> peak{};    // bytes, each kind's peak; the kinds may peak at different times
  std::size_t total = 0;                           // bytes in use now
  std::size_t total_peak = 0;
  std::size_t held = 0;  // bytes taken from the system: in use or pooled
  std::size_t held_peak = 0;
};

/// A caching memory allocator. Blocks are 64-byte aligned; freed blocks are pooled by size and handed out again.
/// Thread-safe. Always held by a shared_ptr: each block keeps its allocator alive.
///
/// The pool of host memory is bounded: before more memory is taken, pooled blocks return some until all blocks together
/// hold no more than the blocks in use did at their peak, and 1/16 of that. So the memory of the process does not
/// depend on how well the sizes of freed blocks fit later requests.
///
/// A freed block of device memory may be handed out while kernels that use it are still running. This is safe if the
/// kernels of the old and the new owner run in one stream, or if the new owner waits for the old kernels.
class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  /// All blocks of host memory together hold at most the peak of those in use and 1/pool_parts of it.
  static constexpr std::size_t pool_parts = 16;

  /// Returns an allocator of host memory. `limit`: the most bytes that it may hold, in use and pooled; 0 for no limit.
  static std::shared_ptr<Allocator> create(std::size_t limit = 0);
  /// Returns an allocator of host memory that refuses requests beyond `room`.
  static std::shared_ptr<Allocator> create_within(MemoryRoom room);
  /// Returns an allocator for rehearsals, which must not write to large blocks. All blocks of 1 MiB or more (after
  /// rounding up) share one range of addresses without memory behind it; smaller ones are host memory, initially zero.
  static std::shared_ptr<Allocator> create_untouched();
  /// Returns an allocator of memory from `source`; `limit` as for the first function.
  static std::shared_ptr<Allocator> create(std::unique_ptr<MemorySource> source, std::size_t limit = 0);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Returns `bytes` of uninitialised memory, released with the last copy of the pointer. `kind` selects the counter in
  /// MemoryUse. If there is not enough, pooled blocks are returned to the system; if that is not enough either, it
  /// throws an Error (ExitCode::failed) that lists the memory in use.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, MemoryKind kind);
  /// Does the same as allocate(), but the memory is zero. With create_untouched() this holds for small blocks only.
  std::shared_ptr<std::byte> allocate_zeros(std::size_t bytes, MemoryKind kind);
  /// Returns the bytes in use and held, and their peaks since creation or reset_peaks().
  MemoryUse use() const;
  void reset_peaks();
  /// Sets a text for messages about a lack of memory, for example what was planned.
  void set_note(std::string note);
  /// Returns all pooled blocks to the system, after MemorySource::settle(); does nothing between start_reserving() and
  /// stop_reserving().
  void trim();
  /// Returns up to `bytes` of pooled blocks of host memory to the system, for code that is about to take memory from
  /// elsewhere.
  void shrink_pool(std::size_t bytes);

  /// A set of blocks for recorded work (a CUDA graph), which uses the same addresses in every replay.
  class Reserve;
  /// Starts a reserve: blocks allocated before stop_reserving() belong to it. When freed they return to the reserve, so
  /// no other code gets them while the reserve exists. Throws an Error if another reserve has been started and not
  /// stopped.
  std::shared_ptr<Reserve> start_reserving();
  void stop_reserving();
  /// Raises the peaks as if the blocks of the reserve were allocated again now. Call it for each replay of recorded
  /// work.
  void count_replay(const Reserve& reserve);

 private:
  Allocator(std::unique_ptr<MemorySource> source, std::size_t limit) : source_(std::move(source)), limit_(limit) {}
  MemoryBlock take(std::size_t bytes, std::size_t capacity);
  bool make_room(std::size_t growth, std::size_t resident);
  void shrink_pool_locked(std::size_t excess);
  void release(const MemoryBlock& block, std::size_t bytes, MemoryKind kind, Reserve* reserve);
  void trim_locked();
  [[noreturn]] void fail_to_allocate(std::size_t bytes, MemoryKind kind) const;

  mutable std::mutex mutex_;
  FreeBlocks free_;
  std::shared_ptr<Reserve> reserving_;
  MemoryUse use_;
  std::size_t resident_ = 0;       // MemoryBlock::resident of the blocks in use
  std::size_t most_resident_ = 0;  // its peak
  std::unique_ptr<MemorySource> source_;
  std::size_t limit_;
  std::string note_;
};

}  // namespace lyceum
