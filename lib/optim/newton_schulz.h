#pragma once

#include <cstdint>

#include "core/round_up.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Returns the number of rows or columns of a matrix of `size` rows or columns in a batch: the next multiple of 8,
/// since cuBLASLt multiplies matrices of other sizes several times slower, also if their rows are whole 16 bytes.
constexpr std::int64_t padded(std::int64_t size) { return round_up<std::int64_t>(size, 8); }

/// Orthogonalises a batch of `count` matrices [rows, cols], which follow each other in `x` [count, padded(rows),
/// padded(cols)], in place [Jordan 2024]:
///   X = U / (‖U‖_F + 1e−7), then five times
///   A = X Xᵀ,  X = a X + (b A + c A²) X   with (a, b, c) = (3.4445, −4.7750, 2.0315)
/// or with A = Xᵀ X, multiplied from the right, if there are more padded rows than columns: the same as for the
/// transposed matrix. Afterwards the singular values are about 1; a matrix of zeros remains one. Products and X have
/// the type of `x`, and products are summed in its accumulator type. The padding must be zero, and remains so in
/// matrices without NaN.
void orthogonalize(const Stream& stream, const Tensor& x, std::int64_t count, std::int64_t rows, std::int64_t cols);

}  // namespace lyceum
