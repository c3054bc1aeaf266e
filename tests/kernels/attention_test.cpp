#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "kernels/attention_problem.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using test::attention_shapes;
using test::expect_near;
using test::expect_right_attention;
using test::make_attention;
using test::OwnedMatrix;
using test::same_bits;

/// On the device that this program tests.
template <class T>
void check(const AttentionShape& shape, double tolerance) {
  expect_right_attention<T>(shape, tolerance, [](const auto& attention) { launch_on(2, attention); });
}

TEST(Attention, AgreesWithTheReference) {
  for (const AttentionShape& shape : attention_shapes) {
    check<float>(shape, 1e-5);
    check<double>(shape, 1e-12);
    check<bfloat16>(shape, 0.03);
  }
}

TEST(Attention, TakesLongHeads) {
  check<bfloat16>({1, 20, 30, 2, 1, 128}, 0.03);
  check<bfloat16>({1, 20, 30, 1, 1, 200}, 0.03);
  check<bfloat16>({1, 4, 6, 2, 1, 260}, 0.03);
  check<float>({1, 4, 6, 2, 1, 260}, 1e-5);
}

TEST(Attention, EmptyInputs) {
  for (const AttentionShape& shape : {AttentionShape{0, 4, 4, 2, 1, 8}, AttentionShape{2, 0, 0, 2, 1, 8}}) {
    check<float>(shape, 0);
    check<double>(shape, 0);
  }
  const AttentionShape no_queries{1, 0, 5, 2, 1, 8};  // keys without queries have no influence
  const auto problem = make_attention<float>(no_queries);
  launch_on(2, problem->forward());
  launch_on(2, problem->backward());
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(problem->dk.view().row(r)[c], 0.0f);
      EXPECT_EQ(problem->dv.view().row(r)[c], 0.0f);
    }
  }
}

/// The gradient of L = Σ d_out · out by central differences.
TEST(Attention, GradientsAreDerivatives) {
  const auto problem = make_attention<double>({2, 5, 7, 4, 2, 3});
  launch_on(2, problem->forward());
  launch_on(2, problem->backward());
  const auto loss = [&] {
    launch_on(2, problem->forward());
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
  constexpr std::int64_t length = 100, kept = 41;
  const auto whole = make_attention<float>({1, length, length, 2, 1, 16});
  const auto changed = make_attention<float>({1, length, length, 2, 1, 16});
  for (auto* side : {&changed->k, &changed->v}) {
    for (std::int64_t r = kept; r < length; ++r) std::fill_n(side->view().row(r), side->view().cols, 1000.0f);
  }
  launch_on(2, whole->forward());
  launch_on(2, changed->forward());
  EXPECT_TRUE(same_bits(whole->out.view().rows_from(0, kept), changed->out.view().rows_from(0, kept)));
  EXPECT_FALSE(same_bits(whole->out.view().rows_from(kept, 1), changed->out.view().rows_from(kept, 1)));
}

TEST(Attention, DecodingTokenByTokenEqualsTheWholeSequence) {
  constexpr std::int64_t length = 75;
  const auto whole = make_attention<float>({1, length, length, 4, 2, 16});
  launch_on(2, whole->forward());
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, length - 1}) {
    OwnedMatrix<float> out(1, 64), log_sum_exp(1, 4);
    launch_on(2, AttentionForward<float>{.shape = {1, 1, at + 1, 4, 2, 16},
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
  const auto problem = make_attention<float>({2, 10, 10, 1, 1, 8});
  problem->q.view().row(4)[2] = std::numeric_limits<float>::quiet_NaN();
  problem->k.view().row(10 + 6)[1] = std::numeric_limits<float>::quiet_NaN();
  launch_on(2, problem->forward());
  for (std::int64_t r = 0; r < 20; ++r) {
    EXPECT_EQ(std::isnan(problem->out.view().row(r)[0]), r == 4 || r >= 16) << "row " << r;
  }
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const auto problem = make_attention<float>({1, 4, 4, 4, 2, 8});
  auto attention = problem->forward();
  attention.shape.kv_heads = 3;
  EXPECT_THROW(launch_on(2, attention), Error);
  attention = problem->forward();
  attention.shape.key_len = 3;
  EXPECT_THROW(launch_on(2, attention), Error);
}

}  // namespace
}  // namespace lyceum
