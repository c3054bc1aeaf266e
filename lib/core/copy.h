#pragma once

#include <span>
#include <vector>

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

/// A tensor of the host's numbers where the stream computes.
template <class T>
Tensor tensor_of(const Stream& stream, const Shape& shape, const std::vector<T>& values) {
  const Tensor tensor = Tensor::empty(stream, dtype_of<T>, shape);
  copy_to_device(stream, tensor.span<T>(), std::span(values));
  return tensor;
}
/// All numbers of a tensor, see copy_to_host().
template <class T>
std::vector<T> values_of(const Stream& stream, const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  if (!values.empty()) copy_to_host(stream, std::span(values), tensor.span<const T>());
  return values;
}

}  // namespace lyceum
