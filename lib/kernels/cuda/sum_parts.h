#pragma once

#include "core/cuda_stream.h"
#include "core/tensor.h"

namespace lyceum {

/// c = the sum of `parts`, added up in order, or c += that sum with `accumulate`.
struct SumParts {
  Matrix<const float> parts;  // matrices like c, one below the other
  std::int64_t height;        // rows from one to the next; those behind c's are left out
  Matrix<float> c;
  bool accumulate;
};
void run(const CudaStream& stream, const SumParts& sum);

}  // namespace lyceum
