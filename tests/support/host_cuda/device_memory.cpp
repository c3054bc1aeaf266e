#include "device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

namespace host_cuda {

namespace {

constexpr std::size_t capacity = std::size_t{16} << 30, page = 4096;

/// A piece of address space, and which blocks of it are taken.
class DeviceMemory {
 public:
  DeviceMemory() {
    void* space = mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return;
    begin_ = static_cast<std::byte*>(space);
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key_ >= 0) pkey_mprotect(begin_, capacity, PROT_READ | PROT_WRITE, key_);
    struct sigaction action {};
    action.sa_sigaction = explain;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;  // then it happens once more, and ends the process
    sigaction(SIGSEGV, &action, nullptr);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) allow(true);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) allow(false);
  }

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!begin_) return nullptr;
    const std::size_t size = std::max((bytes + page - 1) / page * page, page);
    std::size_t at = 0;  // the first gap that is large enough
    for (const auto& [start, length] : blocks_) {
      if (start - at >= size) break;
      at = start + length;
    }
    if (size > capacity - at) return nullptr;
    blocks_[at] = size;
    end_ = std::max(end_, at + size);
    allow(true);
    std::memset(begin_ + at, 0xff, bytes);
    if (users_ == 0) allow(false);
    return begin_ + at;
  }
  void give_back(void* block) {
    if (!block) return;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<std::size_t>(static_cast<std::byte*>(block) - begin_));
    madvise(block, found->second, MADV_DONTNEED);
    blocks_.erase(found);
    end_ = blocks_.empty() ? 0 : blocks_.rbegin()->first + blocks_.rbegin()->second;
  }

  bool holds(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return begin_ && at >= begin_ && at < begin_ + capacity;
  }

 private:
  static void explain(int, siginfo_t* info, void*);
  /// By a protection key where the processor has them, for the calling thread; else by the page tables, which takes
  /// longer the more memory there is.
  void allow(bool access) {
    if (key_ >= 0) {
      pkey_set(key_, access ? 0 : PKEY_DISABLE_ACCESS);
    } else {
      mprotect(begin_, end_, access ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
  }

  std::byte* begin_ = nullptr;
  std::size_t end_ = 0;  // nothing is taken from here on
  std::map<std::size_t, std::size_t> blocks_;
  std::mutex mutex_;
  int users_ = 0, key_ = -1;
};

DeviceMemory& memory() {
  static auto* const only = new DeviceMemory;  // destructors of other objects may still give blocks back
  return *only;
}

void DeviceMemory::explain(int, siginfo_t* info, void*) {
  constexpr char line[] = "host_cuda: code of the host touches device memory\n";
  if (memory().holds(info->si_addr)) static_cast<void>(!write(STDERR_FILENO, line, sizeof line - 1));
}

}  // namespace

DeviceAccess::DeviceAccess() { memory().open(); }
DeviceAccess::~DeviceAccess() { memory().close(); }

void* take_device_memory(std::size_t bytes) { return memory().take(bytes); }
void give_back_device_memory(void* block) { memory().give_back(block); }

}  // namespace host_cuda
