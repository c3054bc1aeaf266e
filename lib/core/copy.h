#pragma once

#include <span>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Copies `bytes` from host memory to memory of the stream's device, in stream order. The caller may change `host` as
/// soon as the call returns. A rehearsal copies nothing. While the stream records a CUDA graph, the graph stores the
/// bytes and writes the same bytes in each replay.
void copy_to_device(const Stream& stream, void* device, const void* host, std::size_t bytes);
/// Copies `bytes` from the stream's device to host memory after all earlier work of the stream. Waits for that work and
/// throws its errors (CudaStream::synchronise()), also if the stream records a CUDA graph. In a rehearsal, it reads the
/// rehearsal's memory: zeros, unless host code has written to it.
void copy_to_host(const Stream& stream, void* host, const void* device, std::size_t bytes);
/// Copies `bytes` within the stream's device, in stream order. The two blocks must not overlap. A rehearsal copies
/// nothing.
void copy_on_device(const Stream& stream, void* to, const void* from, std::size_t bytes);

/// Copy spans of elements as the functions above copy bytes. Throw an Error unless both spans have one size.
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

/// Returns a tensor of `shape` on the stream's device, with `values` in row-major order. Throws an Error unless there
/// is one value per element.
template <class T>
Tensor tensor_of(const Stream& stream, const Shape& shape, const std::vector<T>& values) {
  const Tensor tensor = Tensor::empty(stream, dtype_of<T>, shape);
  copy_to_device(stream, tensor.span<T>(), std::span(values));
  return tensor;
}
/// Returns all elements of a tensor in row-major order. Waits for the device, as copy_to_host() does.
template <class T>
std::vector<T> values_of(const Stream& stream, const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  if (!values.empty()) copy_to_host(stream, std::span(values), tensor.span<const T>());
  return values;
}

}  // namespace lyceum
