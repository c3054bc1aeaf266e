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
using test::same_bits;
using test::Softmax;
using test::Sticks;

template <class Kind>
class Attention : public testing::Test {
 protected:
  /// Checks the attention on the device that this program tests.
  template <class T>
  static void check(const AttentionShape& shape, double tolerance) {
    expect_right_attention<Kind, T>(shape, tolerance, [](const auto& attention) { launch_on(2, attention); });
  }
};

TYPED_TEST_SUITE(Attention, test::AttentionKinds, test::AttentionKindNames);

TYPED_TEST(Attention, AgreesWithTheReference) {
  for (const AttentionShape& shape : attention_shapes) {
    this->template check<float>(shape, 1e-5);
    this->template check<double>(shape, 1e-12);
    this->template check<bfloat16>(shape, 0.03);
  }
}

TYPED_TEST(Attention, KeepsDocumentsApart) {
  const auto run = [](const auto& attention) { launch_on(2, attention); };
  for (const AttentionShape& shape : attention_shapes) {
    const std::vector<std::int32_t> documents = test::documents_in(shape);
    expect_right_attention<TypeParam, float>(shape, 1e-5, run, documents);
    expect_right_attention<TypeParam, double>(shape, 1e-12, run, documents);
    expect_right_attention<TypeParam, bfloat16>(shape, 0.03, run, documents);
  }
  const AttentionShape many{3, 300, 600, 2, 1, 8};
  expect_right_attention<TypeParam, float>(many, 1e-5, run, test::documents_in(many));
}

/// The outputs and gradients of a document are the same as if it were a separate sequence.
TYPED_TEST(Attention, ADocumentIsASequenceOfItsOwn) {
  constexpr std::int64_t length = 150;
  const auto whole = make_attention<float>({1, length, length, 4, 2, 16});
  whole->first_keys = test::documents_in(whole->shape);
  launch_on(2, TypeParam::forward(*whole));
  launch_on(2, TypeParam::backward(*whole));
  for (std::int64_t begin = 0, end = 1; begin < length; begin = end++) {
    while (end < length && whole->first_keys[static_cast<std::size_t>(end)] == begin) ++end;
    const std::int64_t rows = end - begin;
    const auto alone = make_attention<float>({1, rows, rows, 4, 2, 16});
    auto forward = TypeParam::forward(*alone);
    auto backward = TypeParam::backward(*alone);
    forward.q = backward.q = whole->q.view().rows_from(begin, rows);
    forward.k = backward.k = whole->k.view().rows_from(begin, rows);
    forward.v = backward.v = whole->v.view().rows_from(begin, rows);
    backward.d_out = whole->d_out.view().rows_from(begin, rows);
    launch_on(2, forward);
    launch_on(2, backward);
    for (auto member : {&test::AttentionProblem<float>::out, &test::AttentionProblem<float>::dq,
                        &test::AttentionProblem<float>::dk, &test::AttentionProblem<float>::dv}) {
      expect_near(((*alone).*member).view(), ((*whole).*member).view().rows_from(begin, rows), 1e-5);
    }
  }
}

/// The largest score of each query, by its definition, in every number type.
template <class T>
void expect_largest_scores(const AttentionShape& shape, double tolerance) {
  const auto problem = make_attention<T>(shape);
  problem->first_keys = test::documents_in(shape);
  launch_on(2, problem->forward());
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t row = 0; row < shape.sequences * shape.query_len; ++row) {
    const std::int64_t query = row % shape.query_len, end = shape.key_len - shape.query_len + query + 1;
    std::int64_t first = problem->first_keys[static_cast<std::size_t>(row)];
    if (shape.window > 0) first = std::max(first, end - shape.window);
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      double largest = -std::numeric_limits<double>::infinity();
      for (std::int64_t key = first; key < end; ++key) {
        const T* const q = problem->q.view().row(row) + head * shape.head_dim;
        const T* const k =
            problem->k.view().row(row / shape.query_len * shape.key_len + key) + head / group * shape.head_dim;
        double score = 0;
        for (std::int64_t d = 0; d < shape.head_dim; ++d) score += test::as_double(q[d]) * test::as_double(k[d]);
        largest = std::max(largest, score * problem->scale);
      }
      ASSERT_NEAR(problem->largest.view().row(row)[head], largest, tolerance) << "query " << row << ", head " << head;
    }
  }
}

TEST(AttentionForward, KnowsTheLargestScores) {
  for (const std::int64_t window : {0, 9}) {
    const AttentionShape shape{2, 70, 90, 4, 2, 24, window, 16};
    expect_largest_scores<float>(shape, 1e-5);
    expect_largest_scores<double>(shape, 1e-12);
    expect_largest_scores<bfloat16>(shape, 1e-4);
  }
}

TEST(AttentionForward, LargestScoresChangeNoBit) {
  const auto with = make_attention<float>({2, 70, 90, 4, 2, 24}),
             without = make_attention<float>({2, 70, 90, 4, 2, 24});
  launch_on(2, with->forward());
  auto plain = without->forward();
  plain.largest = {};
  launch_on(2, plain);
  EXPECT_TRUE(same_bits(with->out.view(), without->out.view()));
  EXPECT_TRUE(same_bits(with->log_sum_exp.view(), without->log_sum_exp.view()));
  plain.largest = with->largest.view().rows_from(1, 139);
  EXPECT_THROW(launch_on(2, plain), Error);
}

TYPED_TEST(Attention, TakesLongHeads) {
  this->template check<bfloat16>({1, 20, 30, 2, 1, 128}, 0.03);
  this->template check<bfloat16>({1, 20, 30, 1, 1, 200}, 0.03);
  this->template check<bfloat16>({1, 4, 6, 2, 1, 260}, 0.03);
  this->template check<float>({1, 4, 6, 2, 1, 260}, 1e-5);
  this->template check<bfloat16>({1, 40, 70, 2, 2, 192, 0, 128}, 0.03);
  this->template check<float>({1, 40, 70, 2, 2, 192, 0, 128}, 1e-5);
  this->template check<bfloat16>({1, 4, 6, 4, 1, 576, 0, 512}, 0.03);
}

TYPED_TEST(Attention, EmptyInputs) {
  for (const AttentionShape& shape : {AttentionShape{0, 4, 4, 2, 1, 8}, AttentionShape{2, 0, 0, 2, 1, 8}}) {
    this->template check<float>(shape, 0);
    this->template check<double>(shape, 0);
  }
  const AttentionShape no_queries{1, 0, 5, 2, 1, 8};  // 0 queries, 5 keys
  const auto problem = make_attention<float>(no_queries);
  launch_on(2, TypeParam::forward(*problem));
  launch_on(2, TypeParam::backward(*problem));
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(problem->dk.view().row(r)[c], 0.0f);
      EXPECT_EQ(problem->dv.view().row(r)[c], 0.0f);
    }
  }
}

/// Compares gradients with central differences of L = Σ d_out · out.
template <class Kind>
void expect_derivatives(const AttentionShape& shape) {
  const auto problem = make_attention<double>(shape);
  launch_on(2, Kind::forward(*problem));
  launch_on(2, Kind::backward(*problem));
  const auto loss = [&] {
    launch_on(2, Kind::forward(*problem));
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

TYPED_TEST(Attention, GradientsAreDerivatives) {
  expect_derivatives<TypeParam>({2, 5, 7, 4, 2, 3});
  expect_derivatives<TypeParam>({2, 5, 7, 4, 2, 3, 3});
  expect_derivatives<TypeParam>({2, 5, 7, 4, 2, 3, 0, 5});
  expect_derivatives<TypeParam>({1, 5, 7, 4, 2, 5, 3, 2});
}

TYPED_TEST(Attention, FutureTokensHaveNoInfluence) {
  constexpr std::int64_t length = 100, kept = 41;
  const auto whole = make_attention<float>({1, length, length, 2, 1, 16});
  const auto changed = make_attention<float>({1, length, length, 2, 1, 16});
  for (auto* side : {&changed->k, &changed->v}) {
    for (std::int64_t r = kept; r < length; ++r) std::fill_n(side->view().row(r), side->view().cols, 1000.0f);
  }
  launch_on(2, TypeParam::forward(*whole));
  launch_on(2, TypeParam::forward(*changed));
  EXPECT_TRUE(same_bits(whole->out.view().rows_from(0, kept), changed->out.view().rows_from(0, kept)));
  EXPECT_FALSE(same_bits(whole->out.view().rows_from(kept, 1), changed->out.view().rows_from(kept, 1)));
}

TYPED_TEST(Attention, DecodingTokenByTokenEqualsTheWholeSequence) {
  constexpr std::int64_t length = 75;
  const auto whole = make_attention<float>({1, length, length, 4, 2, 16});
  launch_on(2, TypeParam::forward(*whole));
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, length - 1}) {
    const auto one = make_attention<float>({1, 1, at + 1, 4, 2, 16});
    auto attention = TypeParam::forward(*one);
    attention.q = whole->q.view().rows_from(at, 1);
    attention.k = whole->k.view().rows_from(0, at + 1);
    attention.v = whole->v.view().rows_from(0, at + 1);
    launch_on(2, attention);
    expect_near(one->out.view(), whole->out.view().rows_from(at, 1), 1e-5);
    expect_near(TypeParam::kept(*one).view(), TypeParam::kept(*whole).view().rows_from(at, 1), 1e-4);
  }
}

TYPED_TEST(Attention, NanReachesTheQueriesThatSeeIt) {
  const auto problem = make_attention<float>({2, 10, 10, 1, 1, 8});
  problem->q.view().row(4)[2] = std::numeric_limits<float>::quiet_NaN();
  problem->k.view().row(10 + 6)[1] = std::numeric_limits<float>::quiet_NaN();
  launch_on(2, TypeParam::forward(*problem));
  for (std::int64_t r = 0; r < 20; ++r) {
    EXPECT_EQ(std::isnan(problem->out.view().row(r)[0]), r == 4 || r >= 16) << "row " << r;
  }
}

TYPED_TEST(Attention, RefusesShapesThatDoNotFit) {
  const auto problem = make_attention<float>({1, 4, 4, 4, 2, 8});
  auto attention = TypeParam::forward(*problem);
  attention.shape.kv_heads = 3;
  EXPECT_THROW(launch_on(2, attention), Error);
  attention = TypeParam::forward(*problem);
  attention.shape.key_len = 3;
  EXPECT_THROW(launch_on(2, attention), Error);
  attention = TypeParam::forward(*problem);
  attention.shape.window = -1;
  EXPECT_THROW(launch_on(2, attention), Error);
  attention = TypeParam::forward(*problem);
  attention.shape.value_dim = 7;
  EXPECT_THROW(launch_on(2, attention), Error);
}

/// Compares with p_i = β_i · Π_{j > i} (1 - β_j), computed as a product.
TEST(StickBreaking, IsItsDefinition) {
  const AttentionShape shape{2, 6, 9, 4, 2, 3};
  const auto problem = make_attention<double>(shape);
  launch_on(2, problem->stick_forward());
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    for (std::int64_t query = 0; query < 6; ++query) {
      for (std::int64_t head = 0; head < 4; ++head) {
        const std::int64_t row = sequence * 6 + query, seen = 9 - 6 + query + 1, first_key = sequence * 9;
        const auto beta = [&](std::int64_t key) {
          double score = 0;
          for (std::int64_t d = 0; d < 3; ++d) {
            score +=
                problem->q.view().row(row)[head * 3 + d] * problem->k.view().row(first_key + key)[head / 2 * 3 + d];
          }
          return 1 / (1 + std::exp(-problem->scale * score));
        };
        double out[3] = {}, rest = 1;
        for (std::int64_t i = 0; i < seen; ++i) {
          double part = beta(i);
          for (std::int64_t j = i + 1; j < seen; ++j) part *= 1 - beta(j);
          for (std::int64_t d = 0; d < 3; ++d) out[d] += part * problem->v.view().row(first_key + i)[head / 2 * 3 + d];
          rest *= 1 - beta(i);
        }
        for (std::int64_t d = 0; d < 3; ++d) EXPECT_NEAR(problem->out.view().row(row)[head * 3 + d], out[d], 1e-13);
        EXPECT_NEAR(problem->log_rest.view().row(row)[head], std::log(rest), 1e-12);
      }
    }
  }
}

TEST(StickBreaking, GoesThroughManyTilesOfKeys) {
  const AttentionShape shape{1, 300, 521, 2, 1, 8};
  const auto run = [](const auto& attention) { launch_on(2, attention); };
  expect_right_attention<Sticks, float>(shape, 1e-5, run);
  expect_right_attention<Sticks, bfloat16>(shape, 0.03, run);
}

/// Scores are ±50 and more, so that shares are almost 1 or 0.
TEST(StickBreaking, TakesLargeScores) {
  for (const AttentionShape& shape : {AttentionShape{1, 130, 130, 2, 1, 16}, AttentionShape{1, 20, 300, 1, 1, 16}}) {
    const auto fast = make_attention<float>(shape);
    const auto exact = make_attention<double, float>(shape);
    fast->scale = exact->scale = 12;
    launch_on(2, fast->stick_forward());
    launch_on(2, fast->stick_backward());
    lyceum::run(CpuStream(2), exact->stick_forward());
    lyceum::run(CpuStream(2), exact->stick_backward());
    expect_near(fast->out.view(), exact->out.view(), 1e-4);
    expect_near(fast->dq.view(), exact->dq.view(), 2e-3);
    expect_near(fast->dk.view(), exact->dk.view(), 2e-3);
    expect_near(fast->dv.view(), exact->dv.view(), 1e-4);
  }
}

/// If scores are -8, thousands of keys get a part of the stick. Sums over all of them must not lose the newest ones.
TEST(StickBreaking, LongSticksKeepTheirEnds) {
  const AttentionShape shape{1, 3, 5000, 1, 1, 2};
  for (const float score : {-8.0f, 0.0f, 3.0f}) {
    const auto fast = make_attention<float>(shape);
    const auto exact = make_attention<double, float>(shape);
    const auto fill = [&](auto& problem) {
      problem.scale = 1;
      for (std::int64_t r = 0; r < 3; ++r) problem.q.view().row(r)[0] = 1;
      for (std::int64_t r = 0; r < 5000; ++r) problem.k.view().row(r)[0] = score;
    };
    fill(*fast);
    fill(*exact);
    launch_on(2, fast->stick_forward());
    launch_on(2, fast->stick_backward());
    lyceum::run(CpuStream(2), exact->stick_forward());
    lyceum::run(CpuStream(2), exact->stick_backward());
    expect_near(fast->out.view(), exact->out.view(), 2e-5);
    expect_near(fast->dq.view(), exact->dq.view(), 1e-4);
    expect_near(fast->dk.view(), exact->dk.view(), 2e-5);
    expect_near(fast->dv.view(), exact->dv.view(), 2e-5);
  }
}

}  // namespace
}  // namespace lyceum
