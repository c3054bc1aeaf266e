#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/cuda_fault.h"
#include "core/cuda_stream.h"

namespace lyceum {

/// A bounds check for kernels, which cannot throw. A kernel skips an index outside [first, bound); the first such index
/// is recorded, and CudaStream::synchronise() throws an Error that names kernel and index. Passed to kernels by value.
struct IndexCheck {
  DeviceFault* fault;
  const char* kernel;  // string literals on the host
  const char* name;
  std::int64_t first, bound;

  IndexCheck(const CudaStream& stream, const char* kernel, const char* name, std::int64_t first, std::int64_t bound)
      : fault(stream.fault()), kernel(kernel), name(name), first(first), bound(bound) {}

  __device__ bool passes(std::int64_t value) const {
    if (value >= first && value < bound) return true;
    if (atomicCAS(&fault->raised, 0, 1) == 0) {
      fault->kernel = kernel;
      fault->name = name;
      fault->value = value;
      fault->first = first;
      fault->bound = bound;
    }
    return false;
  }
  /// True if value == wanted; otherwise records a fault.
  __device__ bool equals(std::int64_t value, std::int64_t wanted) const { return within(value, wanted, wanted + 1); }
  /// True if 0 ≤ value ≤ most; otherwise records a fault.
  __device__ bool at_most(std::int64_t value, std::int64_t most) const { return within(value, 0, most + 1); }

 private:
  __device__ bool within(std::int64_t value, std::int64_t begin, std::int64_t end) const {
    IndexCheck other = *this;
    other.first = begin;
    other.bound = end;
    return other.passes(value);
  }
};

}  // namespace lyceum
