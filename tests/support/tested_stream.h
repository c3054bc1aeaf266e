#pragma once

#include <span>
#include <vector>

#include "core/copy.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Where the program of tests computes: on the CPU with `threads` threads, or, in a program of tests for GPUs, on one.
inline Stream tested_stream([[maybe_unused]] int threads = 1) {
#ifdef LYCEUM_TEST_DEVICE
  static const Stream device = CudaStream();
  return device;
#else
  return CpuStream(threads);
#endif
}

template <class T>
Tensor tensor_of(const Stream& stream, const Shape& shape, const std::vector<T>& values) {
  const Tensor tensor = Tensor::empty(stream, dtype_of<T>, shape);
  copy_to_device(stream, tensor.span<T>(), std::span(values));
  return tensor;
}

template <class T>
std::vector<T> values_of(const Stream& stream, const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  if (!values.empty()) copy_to_host(stream, std::span(values), tensor.span<const T>());
  return values;
}

}  // namespace lyceum
