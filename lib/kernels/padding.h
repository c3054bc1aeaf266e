#pragma once

#include "core/stream.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

namespace lyceum {

/// Zeroes the rows of x between a segment's rows and the next segment's begin.
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
