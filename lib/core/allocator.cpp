#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/round_up.h"

namespace lyceum {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t mapped_from = std::size_t{1} << 20;  // larger blocks are mapped, so that trim() really frees them

/// Rounds up to one of eight capacities per power of two: a freed block then fits later requests of about the same
/// size.
std::size_t capacity_for(std::size_t bytes) {
  if (bytes <= alignment) return alignment;
  const std::size_t step = std::max(alignment, std::bit_floor(bytes) / 8);
  return round_up(bytes, step);
}

class HostSource : public MemorySource {
 public:
  std::byte* take(std::size_t bytes) override {
    return bytes >= mapped_from ? map(bytes, 0) : static_cast<std::byte*>(std::aligned_alloc(alignment, bytes));
  }
  void give_back(std::byte* block, std::size_t bytes) override {
    if (bytes >= mapped_from) {
      munmap(block, bytes);
    } else {
      std::free(block);
    }
  }
  void clear(std::byte* block, std::size_t bytes) override { std::memset(block, 0, bytes); }

 protected:
  static std::byte* map(std::size_t bytes, int flags) {
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return block == MAP_FAILED ? nullptr : static_cast<std::byte*>(block);
  }
};

/// The source of rehearsals. Small blocks are cleared, since a rehearsal reads some of them (losses, for example) and
/// must not depend on earlier contents. All large blocks have the same address: nothing is written to them, and their
/// sum may exceed the address space.
class UntouchedSource : public HostSource {
 public:
  ~UntouchedSource() override {
    if (region_) munmap(region_, region_bytes_);
  }
  std::byte* take(std::size_t bytes) override { return bytes >= mapped_from ? region() : HostSource::take(bytes); }
  void give_back(std::byte* block, std::size_t bytes) override {
    if (bytes < mapped_from) HostSource::give_back(block, bytes);
  }
  void clear(std::byte* block, std::size_t bytes) override { prepare(block, bytes); }
  void prepare(std::byte* block, std::size_t bytes) override {
    if (bytes < mapped_from) HostSource::clear(block, bytes);
  }

 private:
  /// Maps the region at first use: 1 TiB, or the largest power of two that the process may map; null if none.
  std::byte* region() {
    while (!region_ && region_bytes_ >= mapped_from) {
      region_ = map(region_bytes_, MAP_NORESERVE);
      if (!region_) region_bytes_ /= 2;
    }
    return region_;
  }
  std::byte* region_ = nullptr;
  std::size_t region_bytes_ = std::size_t{1} << 40;
};

}  // namespace

std::string_view name_of(MemoryKind kind) {
  constexpr std::array<std::string_view, memory_kinds> names{"weights", "gradients", "optimizer", "activations",
                                                             "buffers"};
  return names[static_cast<std::size_t>(kind)];
}

std::shared_ptr<Allocator> Allocator::create(std::size_t limit) {
  return create(std::make_unique<HostSource>(), limit);
}

std::shared_ptr<Allocator> Allocator::create_untouched() { return create(std::make_unique<UntouchedSource>()); }

std::shared_ptr<Allocator> Allocator::create(std::unique_ptr<MemorySource> source, std::size_t limit) {
  return std::shared_ptr<Allocator>(new Allocator(std::move(source), limit));
}

Allocator::~Allocator() { trim_locked(); }

std::byte* FreeBlocks::take(std::size_t& capacity) {
  // Accepts a slightly larger block: segment sizes change from step to step and must not grow the pool.
  const auto bin = blocks_.lower_bound(capacity);
  if (bin == blocks_.end() || bin->first > capacity + capacity / 4) return nullptr;
  std::byte* block = bin->second.back();
  capacity = bin->first;
  bin->second.pop_back();
  if (bin->second.empty()) blocks_.erase(bin);
  return block;
}

/// The free blocks of the reserve, and the memory in use while it was recorded. Access is under the allocator's mutex.
class Allocator::Reserve {
 public:
  Reserve(Allocator& allocator, const MemoryUse& before)
      : allocator_(allocator.shared_from_this()), before_(before), most_(before) {}
  ~Reserve() {
    const std::lock_guard lock(allocator_->mutex_);
    free_.drain([this](std::byte* block, std::size_t capacity) { allocator_->free_.put(block, capacity); });
  }
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  FreeBlocks& free() { return free_; }
  /// Records the largest use while the reserve is open.
  void note(const MemoryUse& use) {
    for (std::size_t k = 0; k < memory_kinds; ++k) most_.in_use[k] = std::max(most_.in_use[k], use.in_use[k]);
    most_.total = std::max(most_.total, use.total);
  }
  /// Raises the peaks of `use` as if the blocks were allocated once more now.
  void raise_peaks(MemoryUse& use) const {
    const auto raise = [](std::size_t& peak, std::size_t now, std::size_t most, std::size_t before) {
      peak = std::max(peak, now + most - before);
    };
    for (std::size_t k = 0; k < memory_kinds; ++k) {
      raise(use.peak[k], use.in_use[k], most_.in_use[k], before_.in_use[k]);
    }
    raise(use.total_peak, use.total, most_.total, before_.total);
  }

 private:
  std::shared_ptr<Allocator> allocator_;
  FreeBlocks free_;
  MemoryUse before_, most_;
};

std::byte* Allocator::take(std::size_t& capacity) {
  if (reserving_) {
    if (std::byte* block = reserving_->free().take(capacity)) return block;
  }
  if (std::byte* block = free_.take(capacity)) return block;
  if (limit_ && use_.held + capacity > limit_) trim_locked();
  if (limit_ && use_.held + capacity > limit_) return nullptr;
  std::byte* block = source_->take(capacity);
  if (!block) {
    trim_locked();
    block = source_->take(capacity);
  }
  if (block) {
    use_.held += capacity;
    use_.held_peak = std::max(use_.held_peak, use_.held);
  }
  return block;
}

std::shared_ptr<std::byte> Allocator::allocate(std::size_t bytes, MemoryKind kind) {
  constexpr std::size_t most = std::size_t{1} << 60;  // larger values would overflow capacities
  std::size_t capacity = capacity_for(std::min(bytes, most));
  std::unique_lock lock(mutex_);
  std::byte* block = bytes <= most ? take(capacity) : nullptr;
  if (!block) {
    std::string table;
    for (std::size_t k = 0; k < memory_kinds; ++k) {
      table += format_message("{}{} {} MB", {k ? ", " : "", name_of(static_cast<MemoryKind>(k)), use_.in_use[k] >> 20});
    }
    const std::string limit = limit_ ? format_message(", limit of {} MB", {limit_ >> 20}) : "";
    fail(ExitCode::failed,
         "out of {}: cannot allocate {} MB more for {} (in use: {}{}); lower batch.micro or use more ranks",
         source_->name(), bytes >> 20, name_of(kind), table, limit);
  }
  const auto k = static_cast<std::size_t>(kind);
  use_.in_use[k] += bytes;
  use_.peak[k] = std::max(use_.peak[k], use_.in_use[k]);
  use_.total += bytes;
  use_.total_peak = std::max(use_.total_peak, use_.total);
  if (reserving_) reserving_->note(use_);
  const std::shared_ptr<Reserve> reserve = reserving_;
  lock.unlock();
  source_->prepare(block, bytes);
  return {block, [self = shared_from_this(), capacity, bytes, kind, reserve](std::byte* freed) {
            self->release(freed, capacity, bytes, kind, reserve.get());
          }};
}

std::shared_ptr<std::byte> Allocator::allocate_zeros(std::size_t bytes, MemoryKind kind) {
  std::shared_ptr<std::byte> block = allocate(bytes, kind);
  source_->clear(block.get(), bytes);
  return block;
}

void Allocator::release(std::byte* block, std::size_t capacity, std::size_t bytes, MemoryKind kind, Reserve* reserve) {
  const std::lock_guard lock(mutex_);
  (reserve ? reserve->free() : free_).put(block, capacity);
  use_.in_use[static_cast<std::size_t>(kind)] -= bytes;
  use_.total -= bytes;
}

MemoryUse Allocator::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  use_.peak = use_.in_use;
  use_.total_peak = use_.total;
  use_.held_peak = use_.held;
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void Allocator::trim_locked() {
  if (reserving_) return;  // memory must not return to the system while a CUDA graph is captured
  free_.drain([this](std::byte* block, std::size_t capacity) {
    source_->give_back(block, capacity);
    use_.held -= capacity;
  });
}

std::shared_ptr<Allocator::Reserve> Allocator::start_reserving() {
  const std::lock_guard lock(mutex_);
  require(!reserving_, "memory is already being reserved");
  return reserving_ = std::make_shared<Reserve>(*this, use_);
}

void Allocator::stop_reserving() {
  std::shared_ptr<Reserve> last;  // destroyed after the lock: its destructor locks the mutex
  const std::lock_guard lock(mutex_);
  last = std::move(reserving_);
}

void Allocator::count_replay(const Reserve& reserve) {
  const std::lock_guard lock(mutex_);
  reserve.raise_peaks(use_);
}

}  // namespace lyceum
