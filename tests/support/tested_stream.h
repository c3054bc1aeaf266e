#pragma once

#include <cstdlib>

#include "core/copy.h"
#include "core/stream.h"
#include "support/tested_device.h"

namespace lyceum {

/// Returns a new stream on the tested device: on the CPU with one thread, or in a program of GPU tests on a GPU. The
/// ranks of a machine are assigned to its GPUs in turn.
inline Stream fresh_stream() {
#ifdef LYCEUM_CUDA
  if (tests_run_on_gpu()) {
    const char* rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    return CudaStream(rank ? std::atoi(rank) % CudaStream::device_count() : 0);
  }
#endif
  return CpuStream(1);
}

/// Returns the same stream in every call.
inline const Stream& tested_stream() {
  static const Stream& stream = *new Stream(fresh_stream());  // never destroyed: MPI ends before statics do
  return stream;
}

}  // namespace lyceum
