#pragma once

#include "core/cuda_stream.h"
#include "core/tensor.h"

namespace lyceum {

/// c = the sum of `parts`, added up in order, or c += that sum with `accumulate`.
struct SumParts {
  Matrix<const float> parts;  // matrices like c, one below the other
  Matrix<float> c;
  bool accumulate;
};
void run(const CudaStream& stream, const SumParts& sum);

}  // namespace lyceum
