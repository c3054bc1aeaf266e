#include "device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

namespace host_cuda {

namespace {

constexpr std::size_t capacity = std::size_t{16} << 30, page = 4096, huge_page = std::size_t{2} << 20;

std::size_t up_to(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A range of address space and the blocks of it that are in use. It is protected by a protection key if the processor
/// has them, else by page tables. Then the range has huge pages, since every kernel changes the protection of all of
/// them twice.
class DeviceMemory {
 public:
  DeviceMemory() {
    void* space = mmap(nullptr, capacity + huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return;
    begin_ = reinterpret_cast<std::byte*>(up_to(reinterpret_cast<std::uintptr_t>(space), huge_page));
    madvise(begin_, capacity, MADV_HUGEPAGE);
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key_ >= 0) pkey_mprotect(begin_, capacity, PROT_READ | PROT_WRITE, key_);
    struct sigaction action {};
    action.sa_sigaction = explain;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;  // the access is then repeated and ends the process
    sigaction(SIGSEGV, &action, nullptr);
  }

  /// Makes the memory accessible: for the calling thread, or for all threads without protection keys.
  void open() {
    if (key_ >= 0) {
      pkey_set(key_, 0);
    } else {
      const std::lock_guard lock(mutex_);
      if (users_++ == 0) mprotect(begin_, end_, PROT_READ | PROT_WRITE);
    }
  }
  void close() {
    if (key_ >= 0) {
      pkey_set(key_, PKEY_DISABLE_ACCESS);
    } else {
      const std::lock_guard lock(mutex_);
      if (--users_ == 0) mprotect(begin_, end_, PROT_NONE);
    }
  }

  std::byte* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!begin_) return nullptr;
    const std::size_t size = std::max(up_to(bytes, page), page);
    std::size_t at = 0;  // begins at the first gap that is large enough
    for (const auto& [start, length] : blocks_) {
      if (start - at >= size) break;
      at = start + length;
    }
    if (size > capacity - at) return nullptr;
    blocks_[at] = size;
    end_ = std::max(end_, up_to(at + size, huge_page));
    if (users_ > 0) mprotect(begin_, end_, PROT_READ | PROT_WRITE);
    return begin_ + at;
  }
  void give_back(void* block) {
    if (!block) return;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<std::size_t>(static_cast<std::byte*>(block) - begin_));
    blocks_.erase(found);
  }

  bool holds(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return begin_ && at >= begin_ && at < begin_ + capacity;
  }

 private:
  static void explain(int, siginfo_t* info, void*);
  std::byte* begin_ = nullptr;
  std::size_t end_ = 0;  // no block was ever allocated beyond it
  std::map<std::size_t, std::size_t> blocks_;
  std::mutex mutex_;
  int users_ = 0, key_ = -1;
};

DeviceMemory& memory() {
  static auto* const only = new DeviceMemory;  // never destroyed: destructors of other objects may still free blocks
  return *only;
}

void DeviceMemory::explain(int, siginfo_t* info, void*) {
  constexpr char line[] = "host_cuda: host code accesses device memory\n";
  if (memory().holds(info->si_addr)) static_cast<void>(!write(STDERR_FILENO, line, sizeof line - 1));
}

thread_local int accesses = 0;  // number of nested DeviceAccess objects of this thread

}  // namespace

DeviceAccess::DeviceAccess() {
  if (accesses++ == 0) memory().open();
}
DeviceAccess::~DeviceAccess() {
  if (--accesses == 0) memory().close();
}

void* take_device_memory(std::size_t bytes) {
  std::byte* const block = memory().take(bytes);
  const DeviceAccess access;
  if (block) std::memset(block, 0xff, bytes);
  return block;
}
void give_back_device_memory(void* block) { memory().give_back(block); }

}  // namespace host_cuda
