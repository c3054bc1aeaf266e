#pragma once

#include <cstdlib>

#include "core/copy.h"
#include "core/stream.h"
#include "support/tested_device.h"

namespace lyceum {

/// A stream of its own where the program of tests computes: on the CPU with one thread, or, in a program of tests for
/// GPUs, on one, which the ranks of a machine take by turns.
inline Stream fresh_stream() {
#ifdef LYCEUM_CUDA
  if (tests_run_on_gpu()) {
    const char* rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    return CudaStream(rank ? std::atoi(rank) % CudaStream::device_count() : 0);
  }
#endif
  return CpuStream(1);
}

/// The same one every time.
inline const Stream& tested_stream() {
  static const Stream& stream = *new Stream(fresh_stream());  // never destroyed: MPI ends before statics do
  return stream;
}

}  // namespace lyceum
