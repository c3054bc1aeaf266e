#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Adds up columns: sums[i] += Σ_t x[t, i], in the order of t.
struct SumColumns {
  Matrix<const double> x;  // [rows, cols]
  std::span<double> sums;  // [cols]
};

/// Sets sums[i] = Σ_t counts[t, i].
struct SumCounts {
  Matrix<const std::int64_t> counts;  // [rows, cols]
  std::span<std::int64_t> sums;       // [cols]
};

void run(const CpuStream& stream, const SumColumns& sum);
void run(const CudaStream& stream, const SumColumns& sum);
void run(const CpuStream& stream, const SumCounts& sum);
void run(const CudaStream& stream, const SumCounts& sum);

}  // namespace lyceum
