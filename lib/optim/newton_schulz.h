#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Orthogonalises a batch of `count` matrices [rows, cols], which follow each other in `x` (flat), in place [Jordan
/// 2024]: X = U / (‖U‖_F + 1e−7), then five times
///   A = X Xᵀ,  X = a X + (b A + c A²) X   with (a, b, c) = (3.4445, −4.7750, 2.0315)
/// or with A = Xᵀ X, multiplied from the right, if there are more rows than columns: the same as for the transposed
/// matrix. Afterwards the singular values are about 1; a matrix of zeros remains one. Products and X have the type of
/// `x`, and products are summed in its accumulator type.
void orthogonalize(const Stream& stream, const Tensor& x, std::int64_t count, std::int64_t rows, std::int64_t cols);

}  // namespace lyceum
