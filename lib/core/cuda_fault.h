#pragma once

namespace lyceum {

/// The first out-of-range index that a kernel met since the last CudaStream::synchronise(). It is in device memory.
/// All fields are zero if there was none.
struct DeviceFault {
  int raised;
  const char* kernel;
  const char* name;
  long long value, first, bound;
};

}  // namespace lyceum
