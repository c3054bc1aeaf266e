#pragma once

#include <algorithm>

#include "core/cuda_stream.h"

namespace lyceum {

/// The number of multiprocessors that leave_processors() set aside on a stream.
struct ProcessorsLeft {
  int count = 0;
};

/// Sets aside `count` multiprocessors, but at most half of them, for kernels of other streams, which could otherwise
/// not begin until blocks of a persistent kernel end. 0: none.
inline void leave_processors(const CudaStream& stream, int count) {
  stream.keep<ProcessorsLeft>().count = std::clamp(count, 0, stream.processors() / 2);
}
/// Returns the number of multiprocessors for persistent kernels, whose blocks run until all their work is done: those
/// of the GPU without those set aside. Results must not depend on it.
inline int persistent_processors(const CudaStream& stream) {
  return stream.processors() - stream.keep<ProcessorsLeft>().count;
}

}  // namespace lyceum
