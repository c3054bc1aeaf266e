#pragma once

#include <algorithm>

#include "core/cuda_stream.h"

namespace lyceum {

/// The number of multiprocessors that persistent kernels of a stream leave, see leave_processors().
struct ProcessorsLeft {
  int count = 0;
};

/// Makes persistent kernels of this stream have as few blocks as if the GPU had `count` multiprocessors less, but at
/// least half of them. Kernels of other streams, which could otherwise not begin until blocks of a persistent kernel
/// end, then find room if they fit there. Reserves no particular multiprocessors: the scheduler spreads blocks over all
/// of them, so products of which a multiprocessor holds several blocks (by mma.sync and without tensor cores) still
/// have one on each. 0: none.
inline void leave_processors(const CudaStream& stream, int count) {
  stream.keep<ProcessorsLeft>().count = std::clamp(count, 0, stream.processors() / 2);
}
/// Returns the number of multiprocessors for persistent kernels, whose blocks run until all their work is done: those
/// of the GPU without those that leave_processors() leaves. Results must not depend on it.
inline int persistent_processors(const CudaStream& stream) {
  return stream.processors() - stream.keep<ProcessorsLeft>().count;
}

}  // namespace lyceum
