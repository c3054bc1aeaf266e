#pragma once

#include <gtest/gtest.h>

#include "kernels/gemm.h"
#include "kernels/matrices.h"

namespace lyceum::test {

/// One GEMM to test. `gap`: elements between the rows of every matrix, which must not be written.
struct GemmCase {
  std::int64_t m, k, n;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t gap = 0;
};

/// Returns the error that rounding may cause: in f32 sums of k products of normal numbers, and in the result. The
/// tensor cores of a GPU truncate the sum of every few products of bf16 instead of rounding it, so that these errors
/// add up. Where products are added to a bf16 result, they may be rounded to bf16 before.
template <class T, class Out>
double gemm_tolerance(std::int64_t k) {
  const double size = std::sqrt(static_cast<double>(k)) + 1;
  if (std::is_same_v<T, double>) return 1e-12 * size;
  const double truncation = std::is_same_v<T, bfloat16> ? 1e-5 + 2e-8 * static_cast<double>(k) : 0;
  return size * (1e-5 + truncation + (std::is_same_v<Out, bfloat16> ? 0.03 : 0.0));
}

/// Compares run_gemm(Gemm) with the reference in double on the same numbers.
template <class T, class Out = T, class Launch>
void check_gemm(const GemmCase& c, const Launch& run_gemm) {
  SCOPED_TRACE(testing::Message() << c.m << " x " << c.k << " x " << c.n << (c.transpose_a ? " t" : " n")
                                  << (c.transpose_b ? "t" : "n") << (c.accumulate ? " +=" : " =") << " gap " << c.gap);
  const std::int64_t a_rows = c.transpose_a ? c.k : c.m, a_cols = c.transpose_a ? c.m : c.k;
  const std::int64_t b_rows = c.transpose_b ? c.n : c.k, b_cols = c.transpose_b ? c.k : c.n;
  OwnedMatrix<T> a(a_rows, a_cols, c.gap), b(b_rows, b_cols, c.gap);
  OwnedMatrix<Out> result(c.m, c.n, c.gap);
  OwnedMatrix<double> exact_a(a_rows, a_cols), exact_b(b_rows, b_cols), expected(c.m, c.n);
  a.randomise("a"), b.randomise("b");
  exact_a.template randomise<T>("a"), exact_b.template randomise<T>("b");
  if (c.accumulate) result.randomise("c"), expected.template randomise<Out>("c");
  run_gemm(Gemm<T, Out>{a.view(), b.view(), result.view(), c.transpose_a, c.transpose_b, c.accumulate});
  lyceum::run(CpuStream(2), Gemm<double>{exact_a.view(), exact_b.view(), expected.view(), c.transpose_a, c.transpose_b,
                                         c.accumulate});
  expect_near(result.view(), expected.view(), gemm_tolerance<T, Out>(c.k));
  EXPECT_TRUE(result.gaps_untouched());
}

/// m, k, n of products whose sizes are mostly not multiples of tiles or vectors.
inline constexpr std::int64_t odd_sizes[][3] = {{1, 1, 1},    {1, 7, 33},    {7, 1, 1},     {33, 341, 7},
                                                {64, 64, 64}, {129, 33, 65}, {1, 853, 341}, {132, 530, 131}};

}  // namespace lyceum::test
