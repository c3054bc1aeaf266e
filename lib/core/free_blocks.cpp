#include "core/free_blocks.h"

#include <iterator>

namespace lyceum {

MemoryBlock FreeBlocks::take_from(Bins::iterator bin) {
  const MemoryBlock block = bin->second.back();
  bin->second.pop_back();
  if (bin->second.empty()) blocks_.erase(bin);
  return block;
}

MemoryBlock FreeBlocks::take(std::size_t capacity) {
  // Accepts a slightly larger block: segment sizes change from step to step and must not grow the pool.
  const auto bin = blocks_.lower_bound(capacity);
  if (bin == blocks_.end() || bin->first > capacity + capacity / 4) return {};
  return take_from(bin);
}

MemoryBlock FreeBlocks::take_largest() { return blocks_.empty() ? MemoryBlock{} : take_from(std::prev(blocks_.end())); }

}  // namespace lyceum
