#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/flat_blocks.h"
#include "kernels/instances.h"

namespace lyceum {

/// One flat tensor in a table of tensors (see BlockWalk).
template <class A>
struct TensorRow {
  const A* x;                       // [count]
  std::int64_t count, first_block;  // elements; index of the first block among the blocks of all tensors
};

/// Computes Σ x² in double for every block (flat_block elements) of many tensors. The sum of block b of tensor t is
/// written to sums[offsets[t] + b], or not at all if offsets[t] is negative. The order of summation depends only on the
/// length of the block. NaN and infinity propagate. The table and `offsets` are in memory of the stream's device.
template <class A>
struct SquaresOfTensors {
  std::span<const TensorRow<A>> tensors;
  std::int64_t blocks;                    // number of blocks of all tensors
  std::span<const std::int64_t> offsets;  // [tensors]: offset in `sums`, or negative
  std::span<double> sums;
};

/// The elements [first, first + count) of an array.
struct SumRange {
  std::int64_t first, count;
};

/// Adds up ranges of elements: y[o] = Σ_r Σ x over ranges[r], for r in [begin[o], begin[o + 1]). The order of summation
/// depends only on the device and the lengths of the ranges. All spans are in memory of the stream's device.
struct SumRanges {
  std::span<const double> x;
  std::span<const SumRange> ranges;
  std::span<const std::int64_t> begin;  // [y.size() + 1]: indices of ranges
  std::span<double> y;
};

/// norms[c] = √ Σ_l (x[0][c][l] + x[1][c][l] + x[2][c][l] + x[3][c][l]), summed layer after layer. x has sums of
/// squares for four kinds of tensors, which the caller has added up over different groups of ranks.
struct NormsOfLayers {
  static constexpr std::int64_t kinds = 4;
  std::span<const double> x;  // [kinds, norms.size(), layers]
  std::int64_t layers;
  std::span<double> norms;
  std::span<double> by_layer = {};  // [norms.size(), layers]: √ of each term; or empty
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
