#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include "kernels/cpu/reference_gemm.h"
#include "kernels/cpu/tile_gemm.h"
#include "kernels/matrices.h"

namespace lyceum {
namespace {

using test::expect_near;
using test::OwnedMatrix;
using test::same_bits;

struct Case {
  std::int64_t m, k, n;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t gap = 0;
};

/// What rounding may do: f32 sums of k products of normal numbers, and the result's own rounding.
template <class T, class Out>
double tolerance(std::int64_t k) {
  const double size = std::sqrt(static_cast<double>(k)) + 1;
  if (std::is_same_v<T, double>) return 1e-12 * size;
  return size * (1e-5 + (std::is_same_v<Out, bfloat16> ? 0.02 : 0.0));
}

template <class T, class Out = T>
void check(const Case& c, const CpuStream& stream) {
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
  run(stream, Gemm<T, Out>{a.view(), b.view(), result.view(), c.transpose_a, c.transpose_b, c.accumulate});
  reference::run(stream, Gemm<double>{exact_a.view(), exact_b.view(), expected.view(), c.transpose_a, c.transpose_b,
                                      c.accumulate});
  expect_near(result.view(), expected.view(), tolerance<T, Out>(c.k));
  EXPECT_TRUE(result.gaps_untouched());
}

void check_all_types(const Case& c, const CpuStream& stream) {
  check<float>(c, stream);
  check<double>(c, stream);
  check<bfloat16>(c, stream);
  check<bfloat16, float>(c, stream);
}

constexpr std::int64_t odd_sizes[][3] = {{1, 1, 1},    {1, 7, 33},    {7, 1, 1},     {33, 341, 7},
                                         {64, 64, 64}, {129, 33, 65}, {1, 853, 341}, {132, 530, 131}};

TEST(Gemm, AgreesWithTheReferenceInEveryLayout) {
  const CpuStream stream(2);
  for (const auto& [m, k, n] : odd_sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      check_all_types({m, k, n, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3}, stream);
    }
  }
}

TEST(Gemm, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  force_native_bf16(stream, true);
  for (const auto& [m, k, n] : odd_sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const Case c{m, k, n, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
      check<bfloat16>(c, stream);
      check<bfloat16, float>(c, stream);
    }
  }
}

TEST(Gemm, EmptyExtents) {
  const CpuStream stream(2);
  for (const bool accumulate : {false, true}) {
    check_all_types({0, 5, 7, false, false, accumulate}, stream);
    check_all_types({5, 7, 0, false, true, accumulate}, stream);
    check_all_types({5, 0, 7, true, false, accumulate}, stream);  // a sum of nothing: zero, or c as it was
  }
}

TEST(Gemm, NanReachesItsRowAndColumnOnly) {
  const CpuStream stream(2);
  OwnedMatrix<float> a(40, 50), b(50, 60), c(40, 60);
  a.randomise("a"), b.randomise("b");
  a.view().row(3)[7] = std::numeric_limits<float>::quiet_NaN();
  b.view().row(9)[11] = std::numeric_limits<float>::infinity();
  run(stream, Gemm<float>{a.view(), b.view(), c.view()});
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 60; ++j) {
      EXPECT_EQ(std::isfinite(c.view().row(i)[j]), i != 3 && j != 11) << i << ", " << j;
    }
  }
}

template <class T, class Out>
void check_repeatable(std::int64_t m, std::int64_t k, std::int64_t n) {
  const CpuStream stream(2);
  OwnedMatrix<T> a(m, k), b(n, k);
  OwnedMatrix<Out> first(m, n), second(m, n);
  a.randomise("a"), b.randomise("b");
  for (auto* c : {&first, &second}) {
    run(stream, Gemm<T, Out>{.a = a.view(), .b = b.view(), .c = c->view(), .transpose_b = true});
  }
  EXPECT_TRUE(same_bits(first.view(), second.view()));
}

TEST(Gemm, GivesTheSameBitsTwice) {
  check_repeatable<float, float>(700, 900, 333);
  check_repeatable<bfloat16, bfloat16>(700, 900, 333);
  check_repeatable<bfloat16, float>(97, 1200, 600);
}

TEST(Gemm, RefusesShapesThatDoNotFit) {
  const CpuStream stream(1);
  OwnedMatrix<float> a(3, 4), b(5, 6), c(3, 6);
  EXPECT_THROW(run(stream, Gemm<float>{a.view(), b.view(), c.view()}), Error);
}

TEST(Tiling, CoversTheResultWithTilesOfBoundedSize) {
  for (const std::int64_t m : {0, 1, 31, 512, 910, 8192}) {
    for (const std::int64_t n : {0, 1, 341, 682, 8192}) {
      for (const std::int64_t wanted : {1, 8, 64}) {
        const Tiling tiling = Tiling::of(m, n, wanted);
        EXPECT_LE(tiling.rows, 384);
        EXPECT_LE(tiling.cols, 768);
        EXPECT_GE(tiling.row_tiles * tiling.rows, m);
        EXPECT_LT((tiling.row_tiles - 1) * tiling.rows, std::max<std::int64_t>(m, 1));
        EXPECT_GE(tiling.col_tiles * tiling.cols, n);
        EXPECT_LT((tiling.col_tiles - 1) * tiling.cols, std::max<std::int64_t>(n, 1));
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
