#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/cuda_copy.h"
#include "core/cuda_event.h"

namespace lyceum {

namespace {

constexpr std::size_t slot_bytes = std::size_t{4} << 20;

/// Two pinned buffers between pageable host memory and the device, used alternately. The event of a slot is reached
/// when the device has finished with its buffer.
class Staging {
 public:
  void send(const CudaStream& stream, std::byte* device, const std::byte* host, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += slot_bytes) {
      const std::size_t count = std::min(slot_bytes, bytes - at);
      Slot& slot = next();
      wait_for(stream, slot);
      std::memcpy(slot.buffer.data(), host + at, count);
      check(cudaMemcpyAsync(device + at, slot.buffer.data(), count, cudaMemcpyHostToDevice, stream.handle()),
            "copy to the device");
      slot.done.record(stream.handle());
    }
  }

  void receive(const CudaStream& stream, std::byte* host, const std::byte* device, std::size_t bytes) {
    const std::size_t chunks = (bytes + slot_bytes - 1) / slot_bytes;
    std::array<Slot*, 2> ready{};
    for (std::size_t chunk = 0; chunk < chunks + 1; ++chunk) {
      if (chunk < chunks) {
        const std::size_t at = chunk * slot_bytes;
        Slot& slot = next();
        wait_for(stream, slot);
        check(cudaMemcpyAsync(slot.buffer.data(), device + at, std::min(slot_bytes, bytes - at), cudaMemcpyDeviceToHost,
                              stream.handle()),
              "copy to the host");
        slot.done.record(stream.handle());
        ready[chunk % 2] = &slot;
      }
      if (chunk == 0) continue;
      const std::size_t at = (chunk - 1) * slot_bytes;
      Slot& slot = *ready[(chunk - 1) % 2];
      wait_for(stream, slot);
      std::memcpy(host + at, slot.buffer.data(), std::min(slot_bytes, bytes - at));
    }
  }

 private:
  struct Slot {
    PinnedBuffer buffer{slot_bytes};
    CudaEvent done;
  };
  static void wait_for(const CudaStream& stream, const Slot& slot) {
    stream.wait_until([&] { return slot.done.reached(); });
  }
  Slot& next() { return slots_[turn_++ % slots_.size()]; }

  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
};

}  // namespace

PinnedBuffer::PinnedBuffer(std::size_t bytes) : size_(bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  data_ = static_cast<std::byte*>(memory);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) cudaFreeHost(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void copy_to(const CudaStream& stream, void* device, const void* host, std::size_t bytes) {
  if (bytes <= small_copy) return copy_small(stream, device, host, bytes);
  if (stream.recording()) {  // a CUDA graph stores kernel arguments; a staging buffer would be read in each replay
    for (std::size_t at = 0; at < bytes; at += small_copy) {
      copy_small(stream, static_cast<std::byte*>(device) + at, static_cast<const std::byte*>(host) + at,
                 std::min(small_copy, bytes - at));
    }
    return;
  }
  stream.keep<Staging>().send(stream, static_cast<std::byte*>(device), static_cast<const std::byte*>(host), bytes);
}

void copy_from(const CudaStream& stream, void* host, const void* device, std::size_t bytes) {
  require(!stream.recording(), "work that is recorded as a CUDA graph cannot copy from GPU {}", stream.device());
  if (bytes) {
    stream.keep<Staging>().receive(stream, static_cast<std::byte*>(host), static_cast<const std::byte*>(device), bytes);
  }
  stream.synchronise();
}

void copy_within(const CudaStream& stream, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.handle()), "copy on the device");
}

}  // namespace lyceum
