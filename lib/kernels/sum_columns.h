#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Adds up columns: sums[i] += Σ_t x[t, i], in the order of t.
struct SumColumns {
  Matrix<const double> x;  // [rows, cols]
  std::span<double> sums;  // [cols]
};

void run(const CpuStream& stream, const SumColumns& sum);
void run(const CudaStream& stream, const SumColumns& sum);

}  // namespace lyceum
