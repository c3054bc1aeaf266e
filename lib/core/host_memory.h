#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "core/memory_room.h"
#include "core/memory_source.h"

namespace lyceum {

/// Host memory. Blocks of 64 KiB or more are mapped, so that the system provides their pages when they are first
/// written, and takes them back when they are freed or discarded. Smaller ones come from the heap. (Pooled blocks of
/// medium size would fragment the heap, which libraries use for their temporary buffers.)
class HostMemory : public MemorySource {
 public:
  static constexpr std::size_t mapped_from = std::size_t{1} << 16;

  std::byte* take(std::size_t bytes) override;
  void give_back(std::byte* block, std::size_t bytes) override;
  void clear(std::byte* block, std::size_t bytes) override;
  std::size_t resident(std::size_t capacity, std::size_t bytes) const override;
  bool discards(std::size_t capacity) const override { return capacity >= mapped_from; }
  void discard(std::byte* block, std::size_t kept, std::size_t resident) override;
};

/// Host memory that refuses blocks for which the machine or a control group has no room, where the kernel would end the
/// process without a message.
class BoundedHostMemory : public HostMemory {
 public:
  explicit BoundedHostMemory(MemoryRoom room) : room_(std::move(room)) {}

  bool admits(std::size_t growth, std::size_t held) override;
  std::string refusal() const override { return refusal_; }
  void give_back(std::byte* block, std::size_t bytes) override;
  void discard(std::byte* block, std::size_t kept, std::size_t resident) override;

 private:
  /// Lets the process take bytes again that it has returned to the system.
  void restore(std::size_t bytes) { unread_ += std::min(bytes, allowance_ - unread_); }

  MemoryRoom room_;
  std::size_t allowance_ = 0;  // bytes that might be taken after the room was last read
  std::size_t unread_ = 0;     // those of them that may still be taken before it is read again
  std::string refusal_;
};

/// The source of rehearsals. Small blocks are cleared, since a rehearsal reads some of them (losses, for example) and
/// must not depend on earlier contents. All large blocks have the same address: nothing is written to them, and their
/// sum may exceed the address space.
class UntouchedMemory : public HostMemory {
 public:
  ~UntouchedMemory() override;
  std::byte* take(std::size_t bytes) override;
  void give_back(std::byte* block, std::size_t bytes) override;
  void clear(std::byte* block, std::size_t bytes) override { prepare(block, bytes); }
  void prepare(std::byte* block, std::size_t bytes) override;
  bool discards(std::size_t /*capacity*/) const override { return false; }

 private:
  static constexpr std::size_t untouched_from = std::size_t{1} << 20;
  std::byte* region();

  std::byte* region_ = nullptr;
  std::size_t region_bytes_ = std::size_t{1} << 40;
};

}  // namespace lyceum
