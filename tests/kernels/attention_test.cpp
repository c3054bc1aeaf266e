#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "kernels/attention_problem.h"
#include "kernels/cpu/reference_attention.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {
namespace {

using test::expect_near;
using test::make_attention;
using test::OwnedMatrix;
using test::same_bits;

template <class T>
void check(const AttentionShape& shape, const CpuStream& stream, double tolerance) {
  SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.query_len << " of " << shape.key_len << ", "
                                  << shape.heads << "/" << shape.kv_heads << " x " << shape.head_dim);
  const auto fast = make_attention<T>(shape, 3);
  const auto exact = make_attention<double, T>(shape);
  run(stream, fast->forward());
  run(stream, fast->backward());
  reference::run(stream, exact->forward());
  reference::run(stream, exact->backward());
  expect_near(fast->out.view(), exact->out.view(), tolerance);
  expect_near(fast->log_sum_exp.view(), exact->log_sum_exp.view(), tolerance);
  expect_near(fast->dq.view(), exact->dq.view(), 2 * tolerance);
  expect_near(fast->dk.view(), exact->dk.view(), 4 * tolerance);
  expect_near(fast->dv.view(), exact->dv.view(), 4 * tolerance);
  for (auto* matrix : {&fast->out, &fast->dq, &fast->dk}) EXPECT_TRUE(matrix->gaps_untouched());
  EXPECT_TRUE(fast->log_sum_exp.gaps_untouched());
}

const AttentionShape shapes[] = {
    {1, 1, 1, 1, 1, 1},      {2, 7, 7, 3, 3, 5},  {3, 33, 33, 4, 2, 16}, {1, 64, 64, 2, 1, 64},  {2, 65, 65, 2, 2, 33},
    {1, 200, 200, 4, 1, 32}, {2, 5, 70, 2, 1, 8}, {1, 1, 131, 4, 2, 16}, {1, 100, 131, 1, 1, 8},
};

TEST(Attention, AgreesWithTheReference) {
  const CpuStream stream(2);
  for (const AttentionShape& shape : shapes) {
    check<float>(shape, stream, 1e-5);
    check<double>(shape, stream, 1e-12);
    check<bfloat16>(shape, stream, 0.03);
  }
}

TEST(Attention, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  force_native_bf16(stream, true);
  for (const AttentionShape& shape : shapes) check<bfloat16>(shape, stream, 0.04);
}

TEST(Attention, EmptyInputs) {
  const CpuStream stream(2);
  for (const AttentionShape& shape : {AttentionShape{0, 4, 4, 2, 1, 8}, AttentionShape{2, 0, 0, 2, 1, 8}}) {
    check<float>(shape, stream, 0);
    check<double>(shape, stream, 0);
  }
  const AttentionShape no_queries{1, 0, 5, 2, 1, 8};  // keys without queries have no influence
  const auto problem = make_attention<float>(no_queries);
  run(stream, problem->forward());
  run(stream, problem->backward());
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(problem->dk.view().row(r)[c], 0.0f);
      EXPECT_EQ(problem->dv.view().row(r)[c], 0.0f);
    }
  }
}

/// The gradient of L = Σ d_out · out by central differences.
TEST(Attention, ReferenceGradientsAreDerivatives) {
  const CpuStream stream(1);
  const auto problem = make_attention<double>({2, 5, 7, 4, 2, 3});
  run(stream, problem->forward());
  run(stream, problem->backward());
  const auto loss = [&] {
    run(stream, problem->forward());
    double sum = 0;
    for (std::int64_t i = 0; i < problem->out.view().size(); ++i) {
      sum += problem->out.view().data[i] * problem->d_out.view().data[i];
    }
    return sum;
  };
  const auto compare = [&](const Matrix<double>& input, const Matrix<double>& gradient) {
    for (std::int64_t i = 0; i < input.size(); ++i) {
      constexpr double step = 1e-5;
      const double kept = input.data[i];
      input.data[i] = kept + step;
      const double above = loss();
      input.data[i] = kept - step;
      const double below = loss();
      input.data[i] = kept;
      ASSERT_NEAR((above - below) / (2 * step), gradient.data[i], 1e-8) << "element " << i;
    }
  };
  compare(problem->q.view(), problem->dq.view());
  compare(problem->k.view(), problem->dk.view());
  compare(problem->v.view(), problem->dv.view());
}

TEST(Attention, FutureTokensHaveNoInfluence) {
  const CpuStream stream(2);
  constexpr std::int64_t length = 100, kept = 41;
  const auto whole = make_attention<float>({1, length, length, 2, 1, 16});
  const auto changed = make_attention<float>({1, length, length, 2, 1, 16});
  for (auto* side : {&changed->k, &changed->v}) {
    for (std::int64_t r = kept; r < length; ++r) std::fill_n(side->view().row(r), side->view().cols, 1000.0f);
  }
  run(stream, whole->forward());
  run(stream, changed->forward());
  EXPECT_TRUE(same_bits(whole->out.view().rows_from(0, kept), changed->out.view().rows_from(0, kept)));
  EXPECT_FALSE(same_bits(whole->out.view().rows_from(kept, 1), changed->out.view().rows_from(kept, 1)));
}

TEST(Attention, DecodingTokenByTokenEqualsTheWholeSequence) {
  const CpuStream stream(2);
  constexpr std::int64_t length = 75;
  const auto whole = make_attention<float>({1, length, length, 4, 2, 16});
  run(stream, whole->forward());
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, length - 1}) {
    OwnedMatrix<float> out(1, 64), log_sum_exp(1, 4);
    run(stream, AttentionForward<float>{.shape = {1, 1, at + 1, 4, 2, 16},
                                        .q = whole->q.view().rows_from(at, 1),
                                        .k = whole->k.view().rows_from(0, at + 1),
                                        .v = whole->v.view().rows_from(0, at + 1),
                                        .out = out.view(),
                                        .log_sum_exp = log_sum_exp.view(),
                                        .scale = whole->scale});
    expect_near(out.view(), whole->out.view().rows_from(at, 1), 1e-5);
  }
}

TEST(Attention, NanReachesTheQueriesThatSeeIt) {
  const CpuStream stream(2);
  const auto problem = make_attention<float>({2, 10, 10, 1, 1, 8});
  problem->q.view().row(4)[2] = std::numeric_limits<float>::quiet_NaN();
  problem->k.view().row(10 + 6)[1] = std::numeric_limits<float>::quiet_NaN();
  run(stream, problem->forward());
  for (std::int64_t r = 0; r < 20; ++r) {
    EXPECT_EQ(std::isnan(problem->out.view().row(r)[0]), r == 4 || r >= 16) << "row " << r;
  }
}

template <class T>
void check_bits_do_not_depend_on_threads() {
  const AttentionShape shape{2, 150, 150, 4, 2, 32};
  const auto one = make_attention<T>(shape), two = make_attention<T>(shape);
  for (const auto& [problem, threads] : {std::pair{one.get(), 1}, std::pair{two.get(), 2}}) {
    const CpuStream stream(threads);
    run(stream, problem->forward());
    run(stream, problem->backward());
  }
  EXPECT_TRUE(same_bits(one->out.view(), two->out.view()));
  EXPECT_TRUE(same_bits(one->dq.view(), two->dq.view()));
  EXPECT_TRUE(same_bits(one->dk.view(), two->dk.view()));
  EXPECT_TRUE(same_bits(one->dv.view(), two->dv.view()));
}

TEST(Attention, BitsDoNotDependOnTheNumberOfThreads) {
  check_bits_do_not_depend_on_threads<float>();
  check_bits_do_not_depend_on_threads<bfloat16>();
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const CpuStream stream(1);
  const auto problem = make_attention<float>({1, 4, 4, 4, 2, 8});
  auto attention = problem->forward();
  attention.shape.kv_heads = 3;
  EXPECT_THROW(run(stream, attention), Error);
  attention = problem->forward();
  attention.shape.key_len = 3;
  EXPECT_THROW(run(stream, attention), Error);
}

}  // namespace
}  // namespace lyceum
