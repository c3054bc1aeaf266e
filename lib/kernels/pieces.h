#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/piece_factors.h"

// Pieces are the sub-dimensions of MoHD: hidden is cut into equal parts, of which a token uses some: the first
// `always_on`, and k others that its router chooses.
namespace lyceum {

/// What each piece of a token's answer is multiplied by, from its router's logits: see factors_of(). A is float or
/// double.
template <class A>
struct PieceFactors {
  Matrix<const A> logits;            // [tokens, pieces], at most most_pieces
  Matrix<const std::int32_t> index;  // [tokens, k]: the chosen ones, or −1
  std::int64_t always_on;
  PieceScaling scaling;
  Matrix<A> factors;  // [tokens, pieces]
};
template <class A>
struct PieceFactorsBackward {
  Matrix<const A> logits;
  Matrix<const std::int32_t> index;
  std::int64_t always_on;
  PieceScaling scaling;
  Matrix<const A> d_factors;  // [tokens, pieces]: read where a piece is on
  Matrix<A> d_logits;         // [tokens, pieces]
};

/// What MoHD's balance loss reads (eq. 13), in the columns that a router's load has, see load_width(): of each sequence
/// how many tokens have piece i as their first choice, then Σ_t c_ti / Σ_j c_tj of the factors c; the last two are
/// zero. The tokens are those from `first` on of sequences of seq_len.
template <class A>
struct PieceLoad {
  Matrix<const A> factors;
  Matrix<const std::int32_t> index;
  std::int64_t seq_len, first;
  Matrix<double> load;  // [sequences, load_width(pieces)]
};
template <class A>
struct PieceLoadBackward {
  Matrix<const A> factors;
  Matrix<const double> d_load;
  std::int64_t seq_len, first;
  Matrix<A> d_factors;
};

/// Rows of hidden as [tokens · pieces, hidden / pieces]: source[r] is the row that pair pair_of_row[r] = token · k +
/// choice is about, or −1.
struct PieceRows {
  std::span<const std::int64_t> pair_of_row;
  Matrix<const std::int32_t> index;  // [tokens, k]
  std::int64_t pieces;
  std::span<std::int64_t> source;
};

/// y[t, piece i] = factor[t, i] · (dense[t, i] where i is always on, rows[slot[t · k + j]] where it is choice j), else
/// zeros. Without factors they are 1; without `dense` the pieces that are always on stay as they are.
template <class T>
struct PlacePieces {
  Matrix<const T> dense;               // [tokens, always_on · width] or none
  Matrix<const T> rows;                // [slots, width]
  std::span<const std::int64_t> slot;  // [tokens · k]
  Matrix<const std::int32_t> index;    // [tokens, k]
  std::int64_t always_on;
  Matrix<const Accumulator<T>> factors;  // [tokens, pieces] or none
  Matrix<T> y;                           // [tokens, pieces · width]
};
/// Gradients of PlacePieces with factors and dense. Rows of d_rows that no slot names are left as they are.
template <class T>
struct PlacePiecesBackward {
  Matrix<const T> dense, rows;
  std::span<const std::int64_t> slot;
  Matrix<const std::int32_t> index;
  std::int64_t always_on;
  Matrix<const Accumulator<T>> factors;
  Matrix<const T> dy;
  Matrix<T> d_dense, d_rows;
  Matrix<Accumulator<T>> d_factors;  // 0 where a piece is off
};

/// y[t] += Σ_j rows[slot[t · k + j]], j in order.
template <class T>
struct AddPairs {
  Matrix<const T> rows;                // [slots, cols]
  std::span<const std::int64_t> slot;  // [tokens · k]
  std::int64_t k;
  Matrix<T> y;  // [tokens, cols]
};

template <class A>
void run(const CpuStream& stream, const PieceFactors<A>& pieces);
template <class A>
void run(const CpuStream& stream, const PieceFactorsBackward<A>& pieces);
template <class A>
void run(const CpuStream& stream, const PieceLoad<A>& pieces);
template <class A>
void run(const CpuStream& stream, const PieceLoadBackward<A>& pieces);
void run(const CpuStream& stream, const PieceRows& rows);
template <class T>
void run(const CpuStream& stream, const PlacePieces<T>& place);
template <class T>
void run(const CpuStream& stream, const PlacePiecesBackward<T>& place);
template <class T>
void run(const CpuStream& stream, const AddPairs<T>& add);

template <class A>
void run(const CudaStream& stream, const PieceFactors<A>& pieces);
template <class A>
void run(const CudaStream& stream, const PieceFactorsBackward<A>& pieces);
template <class A>
void run(const CudaStream& stream, const PieceLoad<A>& pieces);
template <class A>
void run(const CudaStream& stream, const PieceLoadBackward<A>& pieces);
void run(const CudaStream& stream, const PieceRows& rows);
template <class T>
void run(const CudaStream& stream, const PlacePieces<T>& place);
template <class T>
void run(const CudaStream& stream, const PlacePiecesBackward<T>& place);
template <class T>
void run(const CudaStream& stream, const AddPairs<T>& add);

#define LYCEUM_PIECES_KERNELS(INSTANCE)               \
  LYCEUM_ACCUMULATORS(INSTANCE, PieceFactors)         \
  LYCEUM_ACCUMULATORS(INSTANCE, PieceFactorsBackward) \
  LYCEUM_ACCUMULATORS(INSTANCE, PieceLoad)            \
  LYCEUM_ACCUMULATORS(INSTANCE, PieceLoadBackward)    \
  LYCEUM_FLOATS(INSTANCE, PlacePieces)                \
  LYCEUM_FLOATS(INSTANCE, PlacePiecesBackward)        \
  LYCEUM_FLOATS(INSTANCE, AddPairs)

}  // namespace lyceum
