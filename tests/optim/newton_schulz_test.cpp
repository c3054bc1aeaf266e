#include "optim/newton_schulz.h"

#include <algorithm>

#include "core/copy.h"
#include "support/grid.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

/// The formula for one matrix, in double and as plain loops. X is transposed if it has more rows than columns.
Grid<double> by_hand(const Grid<double>& u) {
  const bool tall = u.rows > u.cols;
  const std::int64_t k = std::min(u.rows, u.cols), n = std::max(u.rows, u.cols);
  double squares = 0;
  for (const double value : u.flat()) squares += value * value;
  auto x = Grid<double>::zeros(k, n);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < n; ++j) x(i, j) = (tall ? u.at(j, i) : u.at(i, j)) / (std::sqrt(squares) + 1e-7);
  }
  const auto product = [](const Grid<double>& a, const Grid<double>& b, bool transposed) {
    auto c = Grid<double>::zeros(a.rows, transposed ? b.rows : b.cols);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        for (std::int64_t l = 0; l < a.cols; ++l) c(i, j) += a.at(i, l) * (transposed ? b.at(j, l) : b.at(l, j));
      }
    }
    return c;
  };
  for (int step = 0; step < 5; ++step) {
    const Grid<double> gram = product(x, x, true);
    Grid<double> polynomial = product(gram, gram, false);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t j = 0; j < k; ++j) polynomial(i, j) = -4.7750 * gram.at(i, j) + 2.0315 * polynomial.at(i, j);
    }
    const Grid<double> change = product(polynomial, x, false);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t j = 0; j < n; ++j) x(i, j) = 3.4445 * x.at(i, j) + change.at(i, j);
    }
  }
  if (!tall) return x;
  auto back = Grid<double>::zeros(u.rows, u.cols);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < n; ++j) back(j, i) = x.at(i, j);
  }
  return back;
}

template <class T>
class NewtonSchulzTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(NewtonSchulzTest, Types);

/// Orthogonalises the matrices of `u`, which follow each other without padding, and returns them in the same order.
template <class T>
std::vector<T> orthogonalized(const std::vector<T>& u, std::int64_t count, std::int64_t rows, std::int64_t cols) {
  const Stream& stream = tested_stream();
  const std::int64_t all_rows = padded(rows), stride = padded(cols);
  std::vector<T> batch(static_cast<std::size_t>(count * all_rows * stride), T(0.0f));
  for (std::int64_t row = 0; row < count * rows; ++row) {
    std::copy_n(u.begin() + row * cols, cols, batch.begin() + (row / rows * all_rows + row % rows) * stride);
  }
  const Tensor x = tensor_of(stream, {std::ssize(batch)}, batch);
  orthogonalize(stream, x, count, rows, cols);
  const std::vector<T> values = values_of<T>(stream, x);
  std::vector<T> result;
  for (std::int64_t row = 0; row < count * all_rows; ++row) {
    const auto begin = values.begin() + row * stride;
    const std::int64_t used = row % all_rows < rows ? cols : 0;
    result.insert(result.end(), begin, begin + used);
    const auto is_zero = [](T value) { return to_double(value) == 0; };
    const auto first = values.begin() + row / all_rows * all_rows * stride;  // of the matrix
    EXPECT_TRUE(std::isnan(to_double(*first)) || std::all_of(begin + used, begin + stride, is_zero)) << "padding";
  }
  return result;
}

/// bf16 rounds X and products in each of five iterations, which increase small singular values 3.4 times.
template <class T>
constexpr double tolerance = std::is_same_v<T, double>  ? 1e-9
                             : std::is_same_v<T, float> ? 2e-4
                                                        : 0.12;

TYPED_TEST(NewtonSchulzTest, AgreesWithTheFormulaForEveryMatrixOfABatch) {
  using T = TypeParam;
  constexpr std::int64_t sizes[][3] = {{1, 1, 1},   {3, 1, 7},   {2, 7, 1}, {4, 33, 48},
                                       {3, 48, 33}, {2, 40, 40}, {0, 3, 3}};
  for (const auto& [count, rows, cols] : sizes) {
    const auto u = Grid<T>::random(count * rows, cols, "u", 0, 1e-3);
    const std::vector<T> x = orthogonalized(u.values, count, rows, cols);
    for (std::int64_t m = 0; m < count; ++m) {
      Grid<double> one(rows, cols);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) one(r, c) = u.at(m * rows + r, c);
      }
      const Grid<double> expected = by_hand(one);
      double error = 0, size = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          const double value = to_double(x[static_cast<std::size_t>((m * rows + r) * cols + c)]);
          error += std::pow(value - expected.at(r, c), 2);
          size += std::pow(expected.at(r, c), 2);
        }
      }
      EXPECT_TRUE(std::sqrt(error) <= tolerance<T> * std::sqrt(size))
          << m << " of " << count << ", " << rows << " x " << cols << ": " << std::sqrt(error / size);
    }
  }
}

TYPED_TEST(NewtonSchulzTest, LeavesZerosAndDoesNotMixMatrices) {
  using T = TypeParam;
  auto u = Grid<T>::random(3 * 6, 9, "u");
  for (std::int64_t r = 6; r < 12; ++r) {
    for (std::int64_t c = 0; c < 9; ++c) u(r, c) = T(0.0f);
  }
  u(13, 4) = poison<T>();
  const std::vector<T> x = orthogonalized(u.values, 3, 6, 9);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t matrix = i / 54;
    EXPECT_EQ(is_nan(to_double(x[i])), matrix == 2);
    if (matrix == 1) {
      EXPECT_EQ(to_double(x[i]), 0);
    }
  }
}

/// Rows of zeros remain zeros, so elements that training leaves frozen do not move.
TYPED_TEST(NewtonSchulzTest, KeepsRowsAndColumnsOfZeros) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{7, 12}, {12, 7}}) {
    auto u = Grid<T>::random(rows, cols, "u");
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        if (r == 3 || c == 5) u(r, c) = T(0.0f);
      }
    }
    const std::vector<T> x = orthogonalized(u.values, 1, rows, cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        EXPECT_EQ(to_double(x[static_cast<std::size_t>(r * cols + c)]) == 0, r == 3 || c == 5) << r << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
