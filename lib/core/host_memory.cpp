#include "core/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/round_up.h"

namespace lyceum {

namespace {

constexpr std::size_t block_alignment = 64;
constexpr std::size_t page = 4096;

std::byte* map(std::size_t bytes, int flags) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return block == MAP_FAILED ? nullptr : static_cast<std::byte*>(block);
}

}  // namespace

std::byte* HostMemory::take(std::size_t bytes) {
  return bytes >= mapped_from ? map(bytes, 0) : static_cast<std::byte*>(std::aligned_alloc(block_alignment, bytes));
}

void HostMemory::give_back(std::byte* block, std::size_t bytes) {
  if (bytes >= mapped_from) {
    munmap(block, bytes);
  } else {
    std::free(block);
  }
}

void HostMemory::clear(std::byte* block, std::size_t bytes) { std::memset(block, 0, bytes); }

std::size_t HostMemory::resident(std::size_t capacity, std::size_t bytes) const {
  return capacity >= mapped_from ? std::min(capacity, round_up(bytes, page)) : capacity;
}

void HostMemory::discard(std::byte* block, std::size_t kept, std::size_t resident) {
  madvise(block + kept, resident - kept, MADV_DONTNEED);
}

bool BoundedHostMemory::admits(std::size_t growth, std::size_t held) {
  if (growth <= unread_) {
    unread_ -= growth;
    return true;
  }
  const MemoryRoom::Verdict verdict = room_.check(growth, held);
  // A part only: other processes take memory from the same room.
  const auto parts = 64 * static_cast<std::size_t>(room_.sharers());
  allowance_ = verdict.fits() ? verdict.left() / parts : 0;
  unread_ = allowance_;
  refusal_ = verdict.fits() ? "" : verdict.text();
  return verdict.fits();
}

void BoundedHostMemory::give_back(std::byte* block, std::size_t bytes) {
  HostMemory::give_back(block, bytes);
  if (bytes >= mapped_from) restore(bytes);
}

void BoundedHostMemory::discard(std::byte* block, std::size_t kept, std::size_t resident) {
  HostMemory::discard(block, kept, resident);
  restore(resident - kept);
}

UntouchedMemory::~UntouchedMemory() {
  if (region_) munmap(region_, region_bytes_);
}

std::byte* UntouchedMemory::take(std::size_t bytes) {
  return bytes >= untouched_from ? region() : HostMemory::take(bytes);
}

void UntouchedMemory::give_back(std::byte* block, std::size_t bytes) {
  if (bytes < untouched_from) HostMemory::give_back(block, bytes);
}

void UntouchedMemory::prepare(std::byte* block, std::size_t bytes) {
  if (bytes < untouched_from) HostMemory::clear(block, bytes);
}

/// Maps the region at first use: 1 TiB, or the largest power of two that the process may map; null if none.
std::byte* UntouchedMemory::region() {
  while (!region_ && region_bytes_ >= untouched_from) {
    region_ = map(region_bytes_, MAP_NORESERVE);
    if (!region_) region_bytes_ /= 2;
  }
  return region_;
}

}  // namespace lyceum
