#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Which elements of a row a block-diagonal matrix of blocks [b, b] takes together: neighbours, element g · b + c for
/// column c of block g; or one of each run, element g + c · blocks. A Monarch matrix is the first behind the second
/// [Dao et al. 2022].
enum class BlockOrder { neighbours, strided };

/// Of a row of `blocks` blocks of b.
struct BlockPlaces {
  std::int64_t blocks, b;
  BlockOrder order;

  constexpr std::int64_t operator()(std::int64_t g, std::int64_t c) const {
    return order == BlockOrder::neighbours ? g * b + c : g + c * blocks;
  }
};

/// y[t, (g, r)] = Σ_c M_g[r, c] · x[t, (g, c)], or by the transposed M_g; sums in the accumulator's type.
template <class T>
struct BlockDiagonal {
  Matrix<const T> x;        // [rows, blocks · b]
  Matrix<const T> weights;  // [blocks · b, b]: M_0, M_1, … one below the other
  BlockOrder order;
  bool transpose = false;
  Matrix<T> y;  // [rows, blocks · b]; not x
};

/// dM_g += Σ_t dy[t, (g, ·)]ᵀ · x[t, (g, ·)].
template <class T>
struct BlockDiagonalWeightGrad {
  Matrix<const T> dy, x;
  BlockOrder order;
  Matrix<Accumulator<T>> d_weights;  // [blocks · b, b]
};

template <class T>
void run(const CpuStream& stream, const BlockDiagonal<T>& product);
template <class T>
void run(const CpuStream& stream, const BlockDiagonalWeightGrad<T>& grad);
template <class T>
void run(const CudaStream& stream, const BlockDiagonal<T>& product);
template <class T>
void run(const CudaStream& stream, const BlockDiagonalWeightGrad<T>& grad);

#define LYCEUM_BLOCK_DIAGONAL_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, BlockDiagonal)        \
  LYCEUM_FLOATS(INSTANCE, BlockDiagonalWeightGrad)

}  // namespace lyceum
