#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/sub_dimension_factors.h"

// Kernels for the sub-dimensions of MoHD, which are `sub_dimensions` equal parts of the hidden width. The active ones
// of a token are the first `always_on` and the k others that its router chooses.
namespace lyceum {

/// Computes the factor of each sub-dimension of a token's output from the router logits, see compute_factors(). A is
/// float or double.
template <class A>
struct SubDimensionFactors {
  Matrix<const A> logits;            // [tokens, sub_dimensions], at most max_sub_dimensions
  Matrix<const std::int32_t> index;  // [tokens, k]: the chosen sub-dimensions, or −1
  std::int64_t always_on;
  SubDimensionScaling scaling;
  Matrix<A> factors;  // [tokens, sub_dimensions]
};
/// Gradient of SubDimensionFactors by the logits.
template <class A>
struct SubDimensionFactorsBackward {
  Matrix<const A> logits;
  Matrix<const std::int32_t> index;
  std::int64_t always_on;
  SubDimensionScaling scaling;
  Matrix<const A> d_factors;  // [tokens, sub_dimensions]: read only for active sub-dimensions
  Matrix<A> d_logits;         // [tokens, sub_dimensions]
};

/// Computes the sums that MoHD's balance loss reads (eq. 13), in the columns of a router's load (see load_width()). For
/// each sequence: the number of tokens whose first choice is sub-dimension i, then the shares Σ_t c_ti / Σ_j c_tj of
/// the factors c; the last two columns are zero. Row t is token first + t of consecutive sequences of seq_len tokens.
template <class A>
struct SubDimensionLoad {
  Matrix<const A> factors;           // [tokens, sub_dimensions]
  Matrix<const std::int32_t> index;  // [tokens, k]
  std::int64_t seq_len, first;
  Matrix<double> load;  // [sequences, load_width(sub_dimensions)]
};
/// Gradient of SubDimensionLoad by the factors. Counts have no derivative, so only the shares of d_load are read.
template <class A>
struct SubDimensionLoadBackward {
  Matrix<const A> factors;
  Matrix<const double> d_load;
  std::int64_t seq_len, first;
  Matrix<A> d_factors;
};

/// Finds the sub-dimension that each (token, choice) pair refers to, as a row of hidden viewed as [tokens ·
/// sub_dimensions, hidden / sub_dimensions]: source[r] = token · sub_dimensions + index[token, choice] for
/// pair_of_row[r] = token · k + choice, or −1 if that is negative.
struct SubDimensionRows {
  std::span<const std::int64_t> pair_of_row;  // [rows]
  Matrix<const std::int32_t> index;           // [tokens, k]
  std::int64_t sub_dimensions;
  std::span<std::int64_t> source;  // [rows]
};

/// Assembles rows of hidden from sub-dimensions, each multiplied by its factor. Sub-dimension i of token t is
///   factors[t, i] · dense[t, i]                 if i < always_on;
///   factors[t, i] · rows[slot[t · k + j]]       if i is choice j of the token and slot[t · k + j] >= 0;
///   0                                           otherwise.
/// Without factors (no data), they are 1. Without `dense`, y is left unchanged for i < always_on.
template <class T>
struct PlaceSubDimensions {
  Matrix<const T> dense;               // [tokens, always_on · width] or none
  Matrix<const T> rows;                // [slots, width]
  std::span<const std::int64_t> slot;  // [tokens · k]: the row of each choice, or −1
  Matrix<const std::int32_t> index;    // [tokens, k]: the chosen sub-dimensions, or −1
  std::int64_t always_on;
  Matrix<const Accumulator<T>> factors;  // [tokens, sub_dimensions] or none
  Matrix<T> y;                           // [tokens, sub_dimensions · width]
};
/// Gradients of PlaceSubDimensions, whose factors (and dense, if always_on > 0) must be present. Rows of d_rows that no
/// slot refers to are left unchanged.
template <class T>
struct PlaceSubDimensionsBackward {
  Matrix<const T> dense, rows;
  std::span<const std::int64_t> slot;
  Matrix<const std::int32_t> index;
  std::int64_t always_on;
  Matrix<const Accumulator<T>> factors;
  Matrix<const T> dy;
  Matrix<T> d_dense, d_rows;
  Matrix<Accumulator<T>> d_factors;  // 0 for inactive sub-dimensions
};

/// y[t] += Σ_j rows[slot[t · k + j]], in the order of j; negative slots add nothing. k <= max_sub_dimensions.
template <class T>
struct AddPairs {
  Matrix<const T> rows;                // [slots, cols]
  std::span<const std::int64_t> slot;  // [tokens · k]
  std::int64_t k;
  Matrix<T> y;  // [tokens, cols]
};

template <class A>
void run(const CpuStream& stream, const SubDimensionFactors<A>& work);
template <class A>
void run(const CpuStream& stream, const SubDimensionFactorsBackward<A>& work);
template <class A>
void run(const CpuStream& stream, const SubDimensionLoad<A>& work);
template <class A>
void run(const CpuStream& stream, const SubDimensionLoadBackward<A>& work);
void run(const CpuStream& stream, const SubDimensionRows& rows);
template <class T>
void run(const CpuStream& stream, const PlaceSubDimensions<T>& place);
template <class T>
void run(const CpuStream& stream, const PlaceSubDimensionsBackward<T>& place);
template <class T>
void run(const CpuStream& stream, const AddPairs<T>& add);

template <class A>
void run(const CudaStream& stream, const SubDimensionFactors<A>& work);
template <class A>
void run(const CudaStream& stream, const SubDimensionFactorsBackward<A>& work);
template <class A>
void run(const CudaStream& stream, const SubDimensionLoad<A>& work);
template <class A>
void run(const CudaStream& stream, const SubDimensionLoadBackward<A>& work);
void run(const CudaStream& stream, const SubDimensionRows& rows);
template <class T>
void run(const CudaStream& stream, const PlaceSubDimensions<T>& place);
template <class T>
void run(const CudaStream& stream, const PlaceSubDimensionsBackward<T>& place);
template <class T>
void run(const CudaStream& stream, const AddPairs<T>& add);

#define LYCEUM_SUB_DIMENSION_KERNELS(INSTANCE)               \
  LYCEUM_ACCUMULATORS(INSTANCE, SubDimensionFactors)         \
  LYCEUM_ACCUMULATORS(INSTANCE, SubDimensionFactorsBackward) \
  LYCEUM_ACCUMULATORS(INSTANCE, SubDimensionLoad)            \
  LYCEUM_ACCUMULATORS(INSTANCE, SubDimensionLoadBackward)    \
  LYCEUM_FLOATS(INSTANCE, PlaceSubDimensions)                \
  LYCEUM_FLOATS(INSTANCE, PlaceSubDimensionsBackward)        \
  LYCEUM_FLOATS(INSTANCE, AddPairs)

}  // namespace lyceum
