#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace lyceum {

/// A block of memory from a MemorySource.
struct MemoryBlock {
  std::byte* memory = nullptr;
  std::size_t capacity = 0;
  std::size_t resident = 0;  // the first bytes that take memory, see MemorySource::resident()
};

/// Unused blocks, by capacity in bytes.
class FreeBlocks {
 public:
  /// Returns a block of at least `capacity` and at most 5/4 of it; a block without memory if there is none.
  MemoryBlock take(std::size_t capacity);
  /// Returns the block with the largest capacity; a block without memory if there is none.
  MemoryBlock take_largest();
  void put(const MemoryBlock& block) { blocks_[block.capacity].push_back(block); }
  /// Calls f(block) for each block, then forgets all of them.
  template <class F>
  void drain(F&& f) {
    for (const auto& [capacity, blocks] : blocks_) {
      for (const MemoryBlock& block : blocks) f(block);
    }
    blocks_.clear();
  }

 private:
  using Bins = std::map<std::size_t, std::vector<MemoryBlock>>;  // by capacity; no empty lists
  MemoryBlock take_from(Bins::iterator bin);

  Bins blocks_;
};

}  // namespace lyceum
