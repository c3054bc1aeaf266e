#pragma once

#include "core/cuda_stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Sets c to the sum of `parts`, added in order; with `accumulate`, adds that sum to c.
struct SumParts {
  Matrix<const float> parts;  // matrices with the columns of c, stacked
  std::int64_t height;        // rows per part; those after the first c.rows are ignored
  Matrix<float> c;
  bool accumulate;
};
void run(const CudaStream& stream, const SumParts& sum);

}  // namespace lyceum
