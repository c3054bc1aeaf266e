#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Copies `bytes` of the host's memory to where the stream computes, in the stream's order. The host's memory may be
/// changed as soon as the call returns. In a rehearsal nothing is copied.
void copy_to_device(const Stream& stream, void* device, const void* host, std::size_t bytes);
/// Copies back, after all work that the stream has. Waits for it, and throws what went wrong in it. In a rehearsal the
/// host gets what is there: zeros, unless somebody wrote to it.
void copy_to_host(const Stream& stream, void* host, const void* device, std::size_t bytes);
/// Between two places of the device, in the stream's order.
void copy_on_device(const Stream& stream, void* to, const void* from, std::size_t bytes);

template <class T>
void copy_to_device(const Stream& stream, std::span<T> device, std::span<const T> host) {
  require(device.size() == host.size(), "{} elements are copied to {}", host.size(), device.size());
  copy_to_device(stream, device.data(), host.data(), host.size_bytes());
}
template <class T>
void copy_to_host(const Stream& stream, std::span<T> host, std::span<const T> device) {
  require(device.size() == host.size(), "{} elements are copied to {}", device.size(), host.size());
  copy_to_host(stream, host.data(), device.data(), host.size_bytes());
}

}  // namespace lyceum
