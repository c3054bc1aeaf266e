#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/memory_kind.h"

namespace lyceum {

/// Bytes that an Allocator has handed out (in use) and bytes that it has taken from its source (held).
struct MemoryUse {
  std::array<std::size_t, memory_kinds> in_use{};  // bytes, by kind
  std::array<std::size_t, memory_kinds> peak{};    // bytes, each kind's peak; the kinds may peak at different times
  std::size_t total = 0;                           // bytes in use now
  std::size_t total_peak = 0;
  std::size_t held = 0;  // bytes taken from the system: in use or pooled
  std::size_t held_peak = 0;
};

/// The source that an allocator takes its blocks from: host memory, or the memory of one device. Calls of take() and
/// give_back() never overlap; clear() and prepare() may run on several threads at once.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Returns a block of `bytes`, 64-byte aligned; null if out of memory.
  virtual std::byte* take(std::size_t bytes) = 0;
  /// Frees a block that take(bytes) has returned. Must not throw.
  virtual void give_back(std::byte* block, std::size_t bytes) = 0;
  /// Sets the first `bytes` of a block to zero.
  virtual void clear(std::byte* block, std::size_t bytes) = 0;
  /// Called for each block that is handed out uninitialised. A source whose contents must be reproducible may clear it
  /// here.
  virtual void prepare(std::byte* /*block*/, std::size_t /*bytes*/) {}
  /// Name for messages, for example "memory" or "memory on GPU 0".
  virtual std::string_view name() const { return "memory"; }
};

/// Unused blocks, by capacity in bytes.
class FreeBlocks {
 public:
  /// Returns a block of at least `capacity` and at most 5/4 of it, and sets `capacity` to that block's; null if there
  /// is none.
  std::byte* take(std::size_t& capacity);
  void put(std::byte* block, std::size_t capacity) { blocks_[capacity].push_back(block); }
  /// Calls f(block, capacity) for each block, then forgets all of them.
  template <class F>
  void drain(F&& f) {
    for (const auto& [capacity, blocks] : blocks_) {
      for (std::byte* block : blocks) f(block, capacity);
    }
    blocks_.clear();
  }

 private:
  std::map<std::size_t, std::vector<std::byte*>> blocks_;  // no empty lists
};

/// A caching memory allocator. Blocks are 64-byte aligned; freed blocks are pooled by size and handed out again.
/// Thread-safe. Always held by a shared_ptr: each block keeps its allocator alive.
///
/// A freed block of device memory may be handed out while kernels that use it are still running. This is safe if the
/// kernels of the old and the new owner run in one stream, or if the new owner waits for the old kernels.
class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  /// Returns an allocator of host memory. `limit`: the most bytes that it may hold, in use and pooled; 0 for no limit.
  static std::shared_ptr<Allocator> create(std::size_t limit = 0);
  /// Returns an allocator for rehearsals, which must not write to large blocks. All blocks of 1 MiB or more (after
  /// rounding up) share one range of addresses without memory behind it; smaller ones are host memory, initially zero.
  static std::shared_ptr<Allocator> create_untouched();
  /// Returns an allocator of memory from `source`; `limit` as for the first function.
  static std::shared_ptr<Allocator> create(std::unique_ptr<MemorySource> source, std::size_t limit = 0);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Returns `bytes` of uninitialised memory, released with the last copy of the pointer. `kind` selects the counter in
  /// MemoryUse. Throws an Error (ExitCode::failed) that lists the memory in use if there is not enough.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, MemoryKind kind);
  /// Does the same as allocate(), but the memory is zero. With create_untouched() this holds for small blocks only.
  std::shared_ptr<std::byte> allocate_zeros(std::size_t bytes, MemoryKind kind);
  /// Returns the bytes in use and held, and their peaks since creation or reset_peaks().
  MemoryUse use() const;
  void reset_peaks();
  /// Returns all pooled blocks to the system; does nothing between start_reserving() and stop_reserving().
  void trim();

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
  /// Returns a block of at least `capacity` and sets `capacity` to that block's; null if the limit or the memory is
  /// exhausted.
  std::byte* take(std::size_t& capacity);
  void release(std::byte* block, std::size_t capacity, std::size_t bytes, MemoryKind kind, Reserve* reserve);
  void trim_locked();

  mutable std::mutex mutex_;
  FreeBlocks free_;
  std::shared_ptr<Reserve> reserving_;
  MemoryUse use_;
  std::unique_ptr<MemorySource> source_;
  std::size_t limit_;
};

}  // namespace lyceum
