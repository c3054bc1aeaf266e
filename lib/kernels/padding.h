#pragma once

#include "core/stream.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

namespace lyceum {

/// Sets the padding rows of x to 0: the rows from the end of each segment to the start of the next one (after the last
/// segment, to segments.total()).
template <class T>
struct ClearPadding {
  Segments segments;
  Matrix<T> x;  // [segments.total(), hidden]
};

template <class T>
void run(const CpuStream& stream, const ClearPadding<T>& padding);

template <class T>
void run(const CudaStream& stream, const ClearPadding<T>& padding);

#define LYCEUM_PADDING_KERNELS(INSTANCE) LYCEUM_FLOATS(INSTANCE, ClearPadding)

}  // namespace lyceum
