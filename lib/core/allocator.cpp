#include "core/allocator.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.h"
#include "core/host_memory.h"
#include "core/round_up.h"

namespace lyceum {

namespace {

constexpr std::size_t alignment = 64;

/// Rounds up to one of eight capacities per power of two: a freed block then fits later requests of about the same
/// size.
std::size_t capacity_for(std::size_t bytes) {
  if (bytes <= alignment) return alignment;
  const std::size_t step = std::max(alignment, std::bit_floor(bytes) / 8);
  return round_up(bytes, step);
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  constexpr std::array<std::string_view, memory_kinds> names{"weights", "gradients", "optimizer", "activations",
                                                             "buffers"};
  return names[static_cast<std::size_t>(kind)];
}

std::shared_ptr<Allocator> Allocator::create(std::size_t limit) {
  return create(std::make_unique<HostMemory>(), limit);
}

std::shared_ptr<Allocator> Allocator::create_within(MemoryRoom room) {
  return create(std::make_unique<BoundedHostMemory>(std::move(room)));
}

std::shared_ptr<Allocator> Allocator::create_untouched() { return create(std::make_unique<UntouchedMemory>()); }

std::shared_ptr<Allocator> Allocator::create(std::unique_ptr<MemorySource> source, std::size_t limit) {
  return std::shared_ptr<Allocator>(new Allocator(std::move(source), limit));
}

Allocator::~Allocator() { trim_locked(); }

/// The free blocks of the reserve, and the memory in use while it was recorded. Access is under the allocator's mutex.
class Allocator::Reserve {
 public:
  Reserve(Allocator& allocator, const MemoryUse& before)
      : allocator_(allocator.shared_from_this()), before_(before), most_(before) {}
  ~Reserve() {
    const std::lock_guard lock(allocator_->mutex_);
    free_.drain([this](const MemoryBlock& block) { allocator_->free_.put(block); });
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

/// Returns a block of at least `capacity`, of which `bytes` are about to be used; a block without memory if the limit
/// or the memory is exhausted, unless pooled blocks are returned.
MemoryBlock Allocator::take(std::size_t bytes, std::size_t capacity) {
  MemoryBlock block = reserving_ ? reserving_->free().take(capacity) : MemoryBlock{};
  if (!block.memory) block = free_.take(capacity);
  const bool fresh = !block.memory;
  if (fresh) block.capacity = capacity;
  const std::size_t resident = std::max(block.resident, source_->resident(block.capacity, bytes));
  const std::size_t growth = resident - block.resident;
  if (growth > 0 && !make_room(growth, resident)) {
    if (!fresh) free_.put(block);
    return {};
  }
  if (fresh) {
    block.memory = source_->take(capacity);
    if (!block.memory) return {};
  }
  block.resident = resident;
  use_.held += growth;
  use_.held_peak = std::max(use_.held_peak, use_.held);
  resident_ += resident;
  most_resident_ = std::max(most_resident_, resident_);
  return block;
}

/// Returns memory of pooled blocks to the system as far as the bounds require, before a block with `resident` bytes is
/// handed out, `growth` of which are new. False if that is not enough.
bool Allocator::make_room(std::size_t growth, std::size_t resident) {
  const std::size_t most = std::max(most_resident_, resident_ + resident);
  const std::size_t bound = most + most / pool_parts;
  if (use_.held + growth > bound) shrink_pool_locked(use_.held + growth - bound);
  if (limit_ && use_.held + growth > limit_) return false;
  return source_->admits(growth, use_.held);
}

/// Returns `excess` bytes of pooled blocks to the system, if the source can take back parts of blocks and they have as
/// many.
void Allocator::shrink_pool_locked(std::size_t excess) {
  constexpr std::size_t granularity = std::size_t{64} << 10;  // bytes; a multiple of a page
  while (excess > 0) {
    MemoryBlock block = free_.take_largest();
    if (!block.memory) return;
    if (!source_->discards(block.capacity)) return free_.put(block);  // nor can it for smaller ones
    const std::size_t kept = block.resident > excess ? (block.resident - excess) / granularity * granularity : 0;
    const std::size_t freed = block.resident - kept;
    if (kept > 0) {
      source_->discard(block.memory, kept, block.resident);
      block.resident = kept;
      free_.put(block);
    } else {
      source_->give_back(block.memory, block.capacity);
    }
    use_.held -= freed;
    excess -= std::min(excess, freed);
  }
}

void Allocator::fail_to_allocate(std::size_t bytes, MemoryKind kind) const {
  std::string table;
  for (std::size_t k = 0; k < memory_kinds; ++k) {
    table += format_message("{}{} {} MB", {k ? ", " : "", name_of(static_cast<MemoryKind>(k)), use_.in_use[k] >> 20});
  }
  const std::string limit = limit_ ? format_message(", limit of {} MB", {limit_ >> 20}) : "";
  const std::string refusal = source_->refusal().empty() ? "" : source_->refusal() + "; ";
  fail(ExitCode::failed,
       "out of {}: cannot allocate {} MB more for {} (in use: {}{}); {}{}lower batch.micro or use more ranks",
       source_->name(), bytes >> 20, name_of(kind), table, limit, refusal, note_);
}

std::shared_ptr<std::byte> Allocator::allocate(std::size_t bytes, MemoryKind kind) {
  constexpr std::size_t most = std::size_t{1} << 60;  // larger values would overflow capacities
  std::unique_lock lock(mutex_);
  MemoryBlock block = bytes <= most ? take(bytes, capacity_for(bytes)) : MemoryBlock{};
  if (!block.memory && bytes <= most) {
    lock.unlock();
    trim();
    lock.lock();
    block = take(bytes, capacity_for(bytes));
  }
  if (!block.memory) fail_to_allocate(bytes, kind);
  const auto k = static_cast<std::size_t>(kind);
  use_.in_use[k] += bytes;
  use_.peak[k] = std::max(use_.peak[k], use_.in_use[k]);
  use_.total += bytes;
  use_.total_peak = std::max(use_.total_peak, use_.total);
  if (reserving_) reserving_->note(use_);
  const std::shared_ptr<Reserve> reserve = reserving_;
  lock.unlock();
  source_->prepare(block.memory, bytes);
  return {block.memory, [self = shared_from_this(), block, bytes, kind, reserve](std::byte*) {
            self->release(block, bytes, kind, reserve.get());
          }};
}

std::shared_ptr<std::byte> Allocator::allocate_zeros(std::size_t bytes, MemoryKind kind) {
  std::shared_ptr<std::byte> block = allocate(bytes, kind);
  source_->clear(block.get(), bytes);
  return block;
}

void Allocator::release(const MemoryBlock& block, std::size_t bytes, MemoryKind kind, Reserve* reserve) {
  const std::lock_guard lock(mutex_);
  (reserve ? reserve->free() : free_).put(block);
  resident_ -= block.resident;
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

void Allocator::set_note(std::string note) {
  const std::lock_guard lock(mutex_);
  note_ = std::move(note);
}

void Allocator::trim() {
  std::unique_lock lock(mutex_);
  if (reserving_ || use_.held <= resident_) return;
  lock.unlock();  // settle() may take long, and free blocks
  source_->settle();
  lock.lock();
  trim_locked();
}

void Allocator::shrink_pool(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!reserving_) shrink_pool_locked(bytes);
}

void Allocator::trim_locked() {
  if (reserving_) return;  // memory must not return to the system while a CUDA graph is captured
  free_.drain([this](const MemoryBlock& block) {
    source_->give_back(block.memory, block.capacity);
    use_.held -= block.resident;
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
