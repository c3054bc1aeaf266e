#include "optim/newton_schulz.h"

#include <algorithm>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/gemm.h"
#include "kernels/newton_schulz.h"

namespace lyceum {

namespace {

constexpr int iterations = 5;
constexpr double a = 3.4445, b = -4.7750, c = 2.0315, eps = 1e-7;

/// Divides each matrix of a batch by its norm.
template <class T>
void normalize(const Stream& stream, const Matrix<T>& matrices) {
  const Tensor sums = Tensor::empty(stream, DType::f64, {matrices.rows, flat_blocks_of(matrices.cols)});
  const Tensor squares = Tensor::empty(stream, DType::f64, {matrices.rows});
  launch(stream, SquaresOfBatch<T>{.x = matrices, .sums = sums.matrix<double>()});
  launch(stream, SumRows{.x = sums.matrix<const double>(), .y = squares.span<double>()});
  launch(stream, NormalizeBatch<T>{.squares = squares.span<const double>(), .eps = eps, .x = matrices});
}

/// `x` [count, rows, cols].
template <class T>
void orthogonalize_batch(const Stream& stream, const Tensor& x, std::int64_t count, std::int64_t rows,
                         std::int64_t cols) {
  using A = Accumulator<T>;
  const bool wide = rows <= cols;
  const std::int64_t k = std::min(rows, cols);
  normalize(stream, x.reshaped({count, rows * cols}).matrix<T>());
  const Tensor gram = Tensor::empty(stream, dtype_of<T>, {count, k, k}),
               square = Tensor::empty(stream, dtype_of<A>, {count, k, k}),
               product = Tensor::empty(stream, dtype_of<A>, {count, rows, cols});
  const Matrix<T> of_x(x.data<T>(), rows, cols, cols), of_gram(gram.data<T>(), k, k, k);
  const Matrix<A> of_square(square.data<A>(), k, k, k), of_product(product.data<A>(), rows, cols, cols);
  for (int i = 0; i < iterations; ++i) {
    launch(stream,
           GemmBatch<T>{{.a = of_x, .b = of_x, .c = of_gram, .transpose_a = !wide, .transpose_b = wide}, count});
    launch(stream, GemmBatch<T, A>{{.a = of_gram, .b = of_gram, .c = of_square}, count});
    launch(stream, Combine<T>{.a = b, .b = c, .z = square.span<const A>(), .y = gram.span<T>()});
    launch(stream, GemmBatch<T, A>{{.a = wide ? of_gram : of_x, .b = wide ? of_x : of_gram, .c = of_product}, count});
    launch(stream, Combine<T>{.a = a, .b = 1, .z = product.span<const A>(), .y = x.span<T>()});
  }
}

}  // namespace

void orthogonalize(const Stream& stream, const Tensor& x, std::int64_t count, std::int64_t rows, std::int64_t cols) {
  require(x.size() == count * padded(rows) * padded(cols), "a batch of {} matrices {} x {} has {} elements", count,
          rows, cols, x.size());
  if (x.size() == 0) return;
  dispatch_float(x.dtype(), [&]<class T>() { orthogonalize_batch<T>(stream, x, count, padded(rows), padded(cols)); });
}

}  // namespace lyceum
