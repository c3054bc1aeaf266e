#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/flat_blocks.h"
#include "kernels/instances.h"

namespace lyceum {

/// A flat tensor in a table, see BlockWalk.
template <class A>
struct TensorRow {
  const A* x;
  std::int64_t count, first_block;
};

/// Σ x² in double of every block of flat_block elements of many tensors at once: block b of tensor t goes to
/// sums[places[t] + b], nowhere where the place is negative. The order of summation depends on nothing but the block;
/// NaN and infinity stay visible. The table and the places lie where the kernel runs.
template <class A>
struct SquaresOfTensors {
  std::span<const TensorRow<A>> tensors;
  std::int64_t blocks;                   // of all tensors
  std::span<const std::int64_t> places;  // [tensors]
  std::span<double> sums;
};

/// Neighbours [first, first + count) of a list.
struct SumRange {
  std::int64_t first, count;
};

/// y[o] = Σ over ranges [begin[o], begin[o + 1]) of Σ x over the range; the order depends on nothing but the device and
/// the ranges' lengths. Ranges and begin lie where the kernel runs.
struct SumRanges {
  std::span<const double> x;
  std::span<const SumRange> ranges;
  std::span<const std::int64_t> begin;  // [y.size() + 1]
  std::span<double> y;
};

/// norms[c] = √ Σ_l (x[0][c][l] + x[1][c][l] + x[2][c][l]), layer after layer: x is [3, norms.size(), layers].
struct NormsOfLayers {
  std::span<const double> x;
  std::int64_t layers;
  std::span<double> norms;
};

template <class A>
void run(const CpuStream& stream, const SquaresOfTensors<A>& squares);
void run(const CpuStream& stream, const SumRanges& sum);
void run(const CpuStream& stream, const NormsOfLayers& join);

template <class A>
void run(const CudaStream& stream, const SquaresOfTensors<A>& squares);
void run(const CudaStream& stream, const SumRanges& sum);
void run(const CudaStream& stream, const NormsOfLayers& join);

#define LYCEUM_NORMS_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, SquaresOfTensors)

}  // namespace lyceum
