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

struct MemoryUse {
  std::array<std::size_t, memory_kinds> in_use{};  // bytes, by kind
  std::array<std::size_t, memory_kinds> peak{};    // bytes, each kind's own peak
  std::size_t total = 0;                           // bytes in use now
  std::size_t total_peak = 0;
  std::size_t held = 0;  // bytes taken from the system: in use or pooled
  std::size_t held_peak = 0;
};

/// Where an allocator takes its blocks from: the host's memory, or a device's.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// A block of `bytes`, 64-byte aligned; null when there is none.
  virtual std::byte* take(std::size_t bytes) = 0;
  /// What take() gave. Must not throw.
  virtual void give_back(std::byte* block, std::size_t bytes) = 0;
  /// Makes the first `bytes` of a block zero.
  virtual void clear(std::byte* block, std::size_t bytes) = 0;
  /// What uninitialised memory must hold all the same.
  virtual void prepare(std::byte* /*block*/, std::size_t /*bytes*/) {}
  /// "memory", for messages.
  virtual std::string_view name() const { return "memory"; }
};

/// Blocks that nobody uses, by size.
class FreeBlocks {
 public:
  /// One of at least `capacity`, which becomes the block's own; null when there is none of about that size.
  std::byte* take(std::size_t& capacity);
  void put(std::byte* block, std::size_t capacity) { blocks_[capacity].push_back(block); }
  /// Calls f(block, capacity) for all of them, and has none.
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

/// Memory, 64-byte aligned; freed blocks are kept by size and used again. Thread-safe. Outlives its blocks.
/// A block of a device may be used again while kernels that were launched before its end still run: they and those of
/// its next owner are in one stream, or the owner waits for the others.
class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  /// Host memory. `limit`: bytes that may be held at most, 0 for no limit.
  static std::shared_ptr<Allocator> create(std::size_t limit = 0);
  /// Addresses without memory behind them, large blocks all the same ones: for rehearsals, which do not write.
  static std::shared_ptr<Allocator> create_untouched();
  static std::shared_ptr<Allocator> create(std::unique_ptr<MemorySource> source, std::size_t limit = 0);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Uninitialised memory, released when the last owner goes. Throws an Error that lists what is in use.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, MemoryKind kind);
  /// `bytes` of zeros, see allocate(); of untouched memory only as long as it is.
  std::shared_ptr<std::byte> allocate_zeros(std::size_t bytes, MemoryKind kind);
  MemoryUse use() const;
  void reset_peaks();
  /// Gives pooled blocks back to the system.
  void trim();

  /// Blocks set aside for work that is recorded once and runs again and again at the same addresses.
  class Reserve;
  /// Blocks allocated until stop_reserving() are the reserve's: they return to it, and nobody else gets them as long as
  /// it lives. One at a time.
  std::shared_ptr<Reserve> start_reserving();
  void stop_reserving();
  /// The recorded work runs again: peaks rise as when its blocks were allocated.
  void count_again(const Reserve& reserve);

 private:
  Allocator(std::unique_ptr<MemorySource> source, std::size_t limit) : source_(std::move(source)), limit_(limit) {}
  /// A block of at least `capacity`, which becomes the block's own; null when there is none.
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
