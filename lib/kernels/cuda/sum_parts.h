#pragma once

#include "core/cuda_stream.h"
#include "core/tensor.h"

namespace lyceum {

/// c = the sum of `parts`, added in order; c += that sum with `accumulate`.
struct SumParts {
  Matrix<const float> parts;  // matrices with the columns of c, stacked
  std::int64_t height;        // rows per part; those after the first c.rows are ignored
  Matrix<float> c;
  bool accumulate;
};
void run(const CudaStream& stream, const SumParts& sum);

}  // namespace lyceum
