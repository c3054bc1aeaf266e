#include "kernels/cuda/gemm_plans.h"

#include <limits>
#include <tuple>
#include <vector>

#include "kernels/cuda/gemm_shape.h"
#include "kernels/matrices.h"

namespace lyceum {
namespace {

/// c = op(first) · op(second) as a BLAS would: element (r, c) of a matrix stands at c · stride + r.
void column_major_gemm(const BlasGemm& blas, const double* first, const double* second, double* result) {
  const auto element = [](const ColumnMajor& m, const double* data, std::int64_t r, std::int64_t c) {
    if (m.transpose) std::swap(r, c);
    EXPECT_TRUE(r < m.rows && c < m.cols && m.rows <= m.stride);
    return data[c * m.stride + r];
  };
  const std::int64_t depth = blas.first.transpose ? blas.first.rows : blas.first.cols;
  for (std::int64_t r = 0; r < blas.result.rows; ++r) {
    for (std::int64_t c = 0; c < blas.result.cols; ++c) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += element(blas.first, first, r, k) * element(blas.second, second, k, c);
      }
      result[c * blas.result.stride + r] = sum;
    }
  }
}

TEST(BlasGemm, IsTheSameProductColumnByColumn) {
  for (const auto& [m, k, n, gap] : {std::tuple{1, 1, 1, 0}, {5, 3, 7, 0}, {4, 9, 2, 3}, {6, 6, 6, 1}}) {
    for (const int flags : {0, 1, 2, 3}) {
      const bool ta = flags & 1, tb = flags & 2;
      test::OwnedMatrix<double> a(ta ? k : m, ta ? m : k, gap), b(tb ? n : k, tb ? k : n, gap), c(m, n, gap),
          expected(m, n);
      a.randomise("a"), b.randomise("b");
      const Gemm<double> gemm{a.view(), b.view(), c.view(), ta, tb};
      column_major_gemm(BlasGemm(shape_of(gemm)), b.view().data, a.view().data, c.view().data);
      lyceum::run(CpuStream(1), Gemm<double>{a.view(), b.view(), expected.view(), ta, tb});
      test::expect_near(c.view(), expected.view(), 1e-12);
      EXPECT_TRUE(c.gaps_untouched());
    }
  }
}

TEST(GemmShape, TellsApartWhatAnAlgorithmDependsOn) {
  alignas(512) float memory[64];
  EXPECT_EQ(alignment_of(memory), 256u);
  EXPECT_EQ(alignment_of(memory + 1), 4u);
  EXPECT_EQ(alignment_of(memory + 4), 16u);
  EXPECT_EQ(alignment_of(nullptr), 256u);
  const Matrix<float> a(memory, 2, 3), b(memory, 3, 4, 5), c(memory, 2, 4);
  const GemmShape shape = shape_of(Gemm<float>{a, b, c});
  EXPECT_EQ(shape, shape_of(Gemm<float>{a, b, c}));
  EXPECT_NE(shape, shape_of(Gemm<float>{.a = a, .b = b, .c = c, .accumulate = true}));
  EXPECT_NE(shape, shape_of(Gemm<float>{a, b, Matrix<float>(memory + 1, 2, 4)}));
  EXPECT_NE(shape, shape_of(Gemm<float>{a, Matrix<float>(memory, 3, 4), c}));
  EXPECT_THROW(shape_of(Gemm<float>{a, a, c}), Error);
}

TEST(PlanCache, MakesEachPlanOnce) {
  PlanCache<int, int> plans;
  int made = 0;
  const auto make = [&] { return ++made; };
  EXPECT_EQ(plans.get(7, make), 1);
  EXPECT_EQ(plans.get(8, make), 2);
  EXPECT_EQ(plans.get(7, make), 1);
  EXPECT_EQ(plans.size(), 2u);
  EXPECT_THROW(plans.get(9, []() -> int { throw Error(ExitCode::failed, "no plan", {}); }), Error);
  EXPECT_EQ(plans.size(), 2u);
  plans.clear();
  EXPECT_EQ(plans.get(7, make), 3);
}

TEST(ChooseFastest, TakesTheLeastMedianAndTheFirstOfLikeOnes) {
  const auto choose = [](std::vector<std::vector<double>> times) {
    std::vector<std::size_t> calls(times.size());
    return choose_fastest(
        times.size(), [&](std::size_t i) { return times[i][calls[i]++ % times[i].size()]; }, 3);
  };
  EXPECT_EQ(choose({{2}, {1}, {3}}), 1u);
  EXPECT_EQ(choose({{1.0}, {0.99}, {0.985}}), 0u) << "within noise";
  EXPECT_EQ(choose({{1}, {0.1, 5, 5, 5}}), 0u) << "one fast run is no fast algorithm";
  EXPECT_EQ(choose({{4}}), 0u);
  EXPECT_THROW(choose({}), Error);
}

}  // namespace
}  // namespace lyceum
