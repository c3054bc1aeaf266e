#pragma once

namespace lyceum {

/// The first out-of-range index that a kernel met since the last CudaStream::synchronise(). It is in device memory.
/// All fields are zero if there was none.
struct DeviceFault {
  int raised;                     // 1 if there was one
  const char* kernel;             // string literals of the host, which device code must not read
  const char* name;               // of the array of indices
  long long value, first, bound;  // value is outside of [first, bound)
};

}  // namespace lyceum
