#pragma once

#include <cstddef>

#include "core/cuda_stream.h"

namespace lyceum {

/// Pinned host memory: what a GPU can read and write by itself, at full speed and behind the host's back.
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

/// Up to `small_copy` bytes travel as an argument of a kernel: no buffer is waited for, and a CUDA graph keeps them.
constexpr std::size_t small_copy = 2048;
void copy_small(const CudaStream& stream, void* device, const void* host, std::size_t bytes);

/// core/copy.h on a GPU: through two pinned buffers by turns, so that the host fills one while the GPU empties the
/// other.
void copy_to(const CudaStream& stream, void* device, const void* host, std::size_t bytes);
void copy_from(const CudaStream& stream, void* host, const void* device, std::size_t bytes);
void copy_within(const CudaStream& stream, void* to, const void* from, std::size_t bytes);

}  // namespace lyceum
