#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// The elements of a row that one block [b, b] of a block-diagonal matrix multiplies. Column c of block g is element
/// g · b + c (`neighbours`) or g + c · blocks (`strided`). A Monarch matrix is a product of one matrix of each kind
/// [Dao et al. 2022].
enum class BlockOrder { neighbours, strided };

/// Maps column c of block g to the index of its element in a row of `blocks` blocks of b elements.
struct BlockElements {
  std::int64_t blocks, b;
  BlockOrder order;

  constexpr std::int64_t operator()(std::int64_t g, std::int64_t c) const {
    return order == BlockOrder::neighbours ? g * b + c : g + c * blocks;
  }
};

/// Multiplies rows by a block-diagonal matrix of blocks M_g: y[t, (g, r)] = Σ_c M_g[r, c] · x[t, (g, c)], or M_g[c, r]
/// with `transpose`. (g, c) is the element that BlockElements returns. Sums are accumulated in Accumulator<T>.
template <class T>
struct BlockDiagonal {
  Matrix<const T> x;        // [rows, blocks · b]
  Matrix<const T> weights;  // [blocks · b, b]: M_0, M_1, … one below the other
  BlockOrder order;
  bool transpose = false;
  Matrix<T> y;  // [rows, blocks · b]; must not overlap x
};

/// dM_g += Σ_t dy[t, (g, ·)]ᵀ · x[t, (g, ·)].
template <class T>
struct BlockDiagonalWeightGrad {
  Matrix<const T> dy, x;  // [rows, blocks · b]
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
