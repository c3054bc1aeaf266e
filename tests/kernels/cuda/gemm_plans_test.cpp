#include "kernels/cuda/gemm_plans.h"

#include <limits>
#include <tuple>
#include <vector>

#include "kernels/cuda/gemm_shape.h"
#include "kernels/matrices.h"

namespace lyceum {
namespace {

/// Computes result = op(first) · op(second) as a BLAS does: element (r, c) of a matrix is at c · stride + r.
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

/// The chunks of a sum are a batch: each matrix is `next` elements after the previous one.
TEST(BlasGemm, OfABatchIsTheSumInParts) {
  constexpr std::int64_t m = 3, n = 5, depth = 4, parts = 3;
  for (const int flags : {0, 1, 2, 3}) {
    const bool ta = flags & 1, tb = flags & 2;
    test::OwnedMatrix<float> a(ta ? parts * depth : m, ta ? m : parts * depth, 1),
        b(tb ? n : parts * depth, tb ? parts * depth : n, 2), results(parts * m, n);
    test::OwnedMatrix<double> wide_a(a.view().rows, a.view().cols, 1), wide_b(b.view().rows, b.view().cols, 2),
        wide_results(parts * m, n), expected(m, n);
    wide_a.randomise<float>("a"), wide_b.randomise<float>("b");
    const Gemm<float> gemm{.a = a.view(), .b = b.view(), .c = {nullptr, m, n}, .transpose_a = ta, .transpose_b = tb};
    const GemmShape shape =
        batch_of(shape_of(slice_of(gemm, {0, depth}, results.view().rows_from(0, m))), std::int32_t{parts});
    EXPECT_EQ(shape.k, depth);
    const BlasGemm blas(shape);
    for (std::int64_t i = 0; i < parts; ++i) {
      column_major_gemm(blas, wide_b.view().data + i * blas.first.next, wide_a.view().data + i * blas.second.next,
                        wide_results.view().data + i * blas.result.next);
    }
    lyceum::run(CpuStream(1), Gemm<double>{wide_a.view(), wide_b.view(), expected.view(), ta, tb});
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (std::int64_t i = 0; i < parts; ++i) sum += wide_results.view().row(i * m + r)[c];
        EXPECT_NEAR(sum, expected.view().row(r)[c], 1e-12);
      }
    }
  }
}

TEST(CutSum, HasPartsWhereResultsAreFewAndSumsLong) {
  EXPECT_EQ(cut_sum(128, 1280, 32768).parts, 8) << "the router of DeepSeekMoE-2B, dlogits in two halves";
  EXPECT_EQ(cut_sum(2, 1280, 32768).parts, 8);
  EXPECT_EQ(cut_sum(64, 64, 1 << 20).parts, 128);
  EXPECT_EQ(cut_sum(1280, 1280, 32768).parts, 1) << "enough results";
  EXPECT_EQ(cut_sum(1024, 1024, 32768).parts, 2);
  EXPECT_EQ(cut_sum(1025, 1024, 32768).parts, 1);
  EXPECT_EQ(cut_sum(64, 64, 2047).parts, 1) << "a short sum";
  EXPECT_EQ(cut_sum(64, 64, 2048).parts, 2);
  for (const std::int64_t k : {1, 2047, 2048, 2063, 2064, 4095, 5000, 32769, 1 << 20}) {
    const auto [parts, depth, rest] = cut_sum(10, 20, k);
    EXPECT_EQ(rest, (Range{parts * depth, k - parts * depth})) << k;
    EXPECT_TRUE(depth > 0 && rest.count >= 0 && rest.count < depth) << k;
    EXPECT_TRUE(parts == 1 || depth % 16 == 0) << k;
  }
}

TEST(GemmShape, OfABatchHasTheAlignmentOfAllItsMatrices) {
  alignas(256) static bfloat16 memory[8192];
  alignas(256) static float results[256];
  const auto of = [](std::int64_t depth, std::int64_t a_cols, std::int64_t n) {
    return batch_of(
        shape_of(Gemm<bfloat16, float>{
            .a = {memory, depth, a_cols}, .b = {memory, depth, n}, .c = {results, a_cols, n}, .transpose_a = true}),
        2);
  };
  const GemmShape even = of(16, 8, 16), odd = of(16, 3, 5);
  EXPECT_EQ(even.a_alignment, 256u);
  EXPECT_EQ(even.b_alignment, 256u);
  EXPECT_EQ(even.c_alignment, 256u);
  EXPECT_EQ(odd.a_alignment, 32u);
  EXPECT_EQ(odd.b_alignment, 32u);
  EXPECT_EQ(odd.c_alignment, 4u);
  const Gemm<float> one{.a = {results, 2, 3}, .b = {results, 3, 4}, .c = {results + 1, 2, 4}};
  EXPECT_EQ(batch_of(shape_of(one), 1), shape_of(one));
  EXPECT_NE(batch_of(shape_of(one), 2), shape_of(one));
}

TEST(GemmShape, OfSeparateProductsStepsByWholeMatrices) {
  std::array<float, 64> memory{};
  float* const x = memory.data();
  const auto of = [&](bool transpose_a, bool transpose_b) {
    const Gemm<float> gemm{.a = transpose_a ? Matrix<float>(x, 4, 2, 7) : Matrix<float>(x, 2, 4, 7),
                           .b = transpose_b ? Matrix<float>(x, 3, 4, 5) : Matrix<float>(x, 4, 3, 5),
                           .c = {x, 2, 3},
                           .transpose_a = transpose_a,
                           .transpose_b = transpose_b};
    return BlasGemm(batch_of(shape_of(gemm), 3, true));
  };
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      EXPECT_EQ(of(a, b).second.next, (a ? 4 : 2) * 7);
      EXPECT_EQ(of(a, b).first.next, (b ? 3 : 4) * 5);
      EXPECT_EQ(of(a, b).result.next, 6);
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
  EXPECT_EQ(choose({{1}, {0.1, 5, 5, 5}}), 0u) << "a single fast run does not make an algorithm fast";
  EXPECT_EQ(choose({{4}}), 0u);
  EXPECT_THROW(choose({}), Error);
}

}  // namespace
}  // namespace lyceum
