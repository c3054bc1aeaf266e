#pragma once

namespace lyceum {

/// The first bad index that a kernel met since the last CudaStream::synchronise(), in the device's memory; all zeros:
/// none. The names are literals of the host.
struct DeviceFault {
  int raised;
  const char* kernel;
  const char* name;
  long long value, first, bound;
};

}  // namespace lyceum
