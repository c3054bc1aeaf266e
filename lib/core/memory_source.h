#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lyceum {

/// The source that an allocator takes its blocks from: host memory, or the memory of one device. Calls of take(),
/// give_back(), discard() and admits() never overlap; settle(), clear() and prepare() may run on several threads.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Returns a block of `bytes`, 64-byte aligned; null if out of memory.
  virtual std::byte* take(std::size_t bytes) = 0;
  /// Called before blocks are given back because memory is short. Waits for work of the device for which giving back
  /// would wait without a timeout. May throw. For a device, call it only on the thread that uses its stream.
  virtual void settle() {}
  /// Frees a block that take(bytes) has returned. Must not throw.
  virtual void give_back(std::byte* block, std::size_t bytes) = 0;
  /// Sets the first `bytes` of a block to zero.
  virtual void clear(std::byte* block, std::size_t bytes) = 0;
  /// Called for each block that is handed out uninitialised. A source whose contents must be reproducible may clear it
  /// here.
  virtual void prepare(std::byte* /*block*/, std::size_t /*bytes*/) {}
  /// Name for messages, for example "memory" or "memory on GPU 0".
  virtual std::string_view name() const { return "memory"; }

  /// Returns how many bytes of a block of `capacity` take memory once its first `bytes` are in use: all of them, unless
  /// the system provides memory page by page when it is first written.
  virtual std::size_t resident(std::size_t capacity, std::size_t /*bytes*/) const { return capacity; }
  /// True if discard() can be called for blocks of `capacity`.
  virtual bool discards(std::size_t /*capacity*/) const { return false; }
  /// Frees the memory behind the bytes [kept, resident) of an unused block. Their addresses remain valid.
  virtual void discard(std::byte* /*block*/, std::size_t /*kept*/, std::size_t /*resident*/) {}
  /// Called before blocks take `growth` bytes more than the `held` ones. False if the system would not have them.
  virtual bool admits(std::size_t /*growth*/, std::size_t /*held*/) { return true; }
  /// Returns why admits() was false, for messages.
  virtual std::string refusal() const { return {}; }
};

}  // namespace lyceum
