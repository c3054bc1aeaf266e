#pragma once

#include <cstddef>

#include "core/cuda_stream.h"

namespace lyceum {

/// Owns pinned host memory, which a GPU can read and write asynchronously and at full speed.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The largest copy, in bytes, that copy_small() can make.
constexpr std::size_t small_copy = 2048;
/// Copies `bytes` ≤ small_copy from host memory to the device as a kernel argument. The call needs no staging buffer
/// and so never waits for one; a CUDA graph stores the bytes and writes them again in each replay.
void copy_small(const CudaStream& stream, void* device, const void* host, std::size_t bytes);

/// The implementation of core/copy.h on a GPU. Large copies alternate between two pinned buffers: the host fills one
/// while the GPU reads the other.
void copy_to(const CudaStream& stream, void* device, const void* host, std::size_t bytes);
void copy_from(const CudaStream& stream, void* host, const void* device, std::size_t bytes);
void copy_within(const CudaStream& stream, void* to, const void* from, std::size_t bytes);

}  // namespace lyceum
