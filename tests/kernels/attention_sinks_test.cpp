#include "kernels/attention_sinks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention_problem.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using test::expect_near;
using test::make_attention;
using test::OwnedMatrix;

/// Attention with sinks, forward and backward, on the device that this program tests.
template <class T, class Like = T>
struct WithSinks {
  using A = Accumulator<T>;
  std::unique_ptr<test::AttentionProblem<T>> attention;
  OwnedMatrix<T> sinks;
  OwnedMatrix<A> of_tokens, d_sinks;

  explicit WithSinks(const AttentionShape& shape, std::int64_t gap = 0)
      : attention(make_attention<T, Like>(shape, gap)),
        sinks(1, shape.heads),
        of_tokens(shape.sequences * shape.query_len, shape.heads, gap),
        d_sinks(1, shape.heads) {
    sinks.template randomise<Like>("sinks");
  }
  std::span<const T> of_heads() { return {sinks.view().data, static_cast<std::size_t>(sinks.view().cols)}; }
  WithSinks& forward() {
    launch_on(2, attention->forward());
    launch_on(2, ApplySinks<T>{
                     .sinks = of_heads(), .out = attention->out.view(), .log_sum_exp = attention->log_sum_exp.view()});
    return *this;
  }
  WithSinks& backward() {
    launch_on(2, attention->backward());
    launch_on(2, SinkGradients<T>{.sinks = of_heads(),
                                  .out = attention->out.view(),
                                  .d_out = attention->d_out.view(),
                                  .log_sum_exp = attention->log_sum_exp.view(),
                                  .d_sinks = of_tokens.view()});
    const Matrix<A> sums = d_sinks.view();
    for (std::int64_t head = 0; head < sums.cols; ++head) {
      sums.row(0)[head] = 0;
      for (std::int64_t t = 0; t < of_tokens.view().rows; ++t) sums.row(0)[head] += of_tokens.view().row(t)[head];
    }
    return *this;
  }
};

constexpr AttentionShape shapes[] = {
    {1, 1, 1, 1, 1, 1},    {2, 7, 7, 3, 3, 5},      {2, 33, 33, 4, 2, 16},
    {1, 70, 70, 2, 1, 64}, {1, 5, 70, 2, 1, 8, 20}, {2, 65, 65, 4, 4, 33, 10},
};

/// Compares with a softmax over the visible scores and the sink, computed here.
TEST(AttentionSinks, AreALogitWithoutAValue) {
  for (const AttentionShape& shape : shapes) {
    WithSinks<double> all(shape);
    all.forward();
    const std::int64_t dim = shape.head_dim;
    for (std::int64_t row = 0; row < shape.sequences * shape.query_len; ++row) {
      const std::int64_t position = shape.key_len - shape.query_len + row % shape.query_len;
      const std::int64_t first = shape.window > 0 ? std::max<std::int64_t>(0, position - shape.window + 1) : 0;
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t column = head / (shape.heads / shape.kv_heads) * dim;
        double sum = std::exp(all.of_heads()[static_cast<std::size_t>(head)]);
        std::vector<double> result(static_cast<std::size_t>(dim));
        for (std::int64_t key = first; key <= position; ++key) {
          const std::int64_t key_row = row / shape.query_len * shape.key_len + key;
          double score = 0;
          for (std::int64_t d = 0; d < dim; ++d) {
            score +=
                all.attention->q.view().row(row)[head * dim + d] * all.attention->k.view().row(key_row)[column + d];
          }
          const double weight = std::exp(score * all.attention->scale);
          sum += weight;
          for (std::int64_t d = 0; d < dim; ++d) {
            result[static_cast<std::size_t>(d)] += weight * all.attention->v.view().row(key_row)[column + d];
          }
        }
        EXPECT_NEAR(all.attention->log_sum_exp.view().row(row)[head], std::log(sum), 1e-12);
        for (std::int64_t d = 0; d < dim; ++d) {
          EXPECT_NEAR(all.attention->out.view().row(row)[head * dim + d], result[static_cast<std::size_t>(d)] / sum,
                      1e-12);
        }
      }
    }
  }
}

template <class T>
void expect_right(double tolerance) {
  for (const AttentionShape& shape : shapes) {
    WithSinks<T> fast(shape, 3);
    WithSinks<double, T> exact(shape);
    fast.forward().backward();
    exact.forward().backward();
    expect_near(fast.attention->out.view(), exact.attention->out.view(), tolerance);
    expect_near(fast.attention->log_sum_exp.view(), exact.attention->log_sum_exp.view(), tolerance);
    expect_near(fast.attention->dq.view(), exact.attention->dq.view(), 2 * tolerance);
    expect_near(fast.attention->dk.view(), exact.attention->dk.view(), 4 * tolerance);
    expect_near(fast.attention->dv.view(), exact.attention->dv.view(), 4 * tolerance);
    expect_near(fast.d_sinks.view(), exact.d_sinks.view(), 10 * tolerance);
    EXPECT_TRUE(fast.attention->out.gaps_untouched());
    EXPECT_TRUE(fast.of_tokens.gaps_untouched());
  }
}

TEST(AttentionSinks, AgreeWithDouble) {
  expect_right<float>(1e-5);
  expect_right<bfloat16>(0.03);
}

/// Compares all gradients with central differences of L = Σ d_out · out.
TEST(AttentionSinks, GradientsAreDerivatives) {
  for (const std::int64_t window : {0, 2}) {
    WithSinks<double> all({2, 5, 7, 4, 2, 3, window});
    all.forward().backward();
    const auto loss = [&] {
      all.forward();
      double sum = 0;
      const Matrix<double> out = all.attention->out.view(), d_out = all.attention->d_out.view();
      for (std::int64_t i = 0; i < out.size(); ++i) sum += out.data[i] * d_out.data[i];
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
    compare(all.attention->q.view(), all.attention->dq.view());
    compare(all.attention->k.view(), all.attention->dk.view());
    compare(all.attention->v.view(), all.attention->dv.view());
    compare(all.sinks.view(), all.d_sinks.view());
  }
}

/// Sinks far above and below all scores: everything goes to the sink, or nothing. No exponential overflows.
TEST(AttentionSinks, MayBeOfAnySize) {
  for (const float sink : {-1e4f, 1e4f}) {
    const AttentionShape shape{1, 6, 6, 2, 1, 4};
    WithSinks<float> all(shape);
    const auto plain = make_attention<float>(shape);
    launch_on(2, plain->forward());
    for (std::int64_t head = 0; head < 2; ++head) all.sinks.view().row(0)[head] = sink;
    all.forward().backward();
    for (std::int64_t i = 0; i < all.attention->out.view().size(); ++i) {
      EXPECT_EQ(all.attention->out.view().data[i], sink > 0 ? 0.0f : plain->out.view().data[i]);
    }
    for (std::int64_t head = 0; head < 2; ++head) EXPECT_EQ(all.d_sinks.view().row(0)[head], 0.0f);
  }
}

TEST(AttentionSinks, RefuseOperandsThatDoNotFit) {
  WithSinks<float> all({1, 4, 4, 4, 2, 8});
  all.forward();
  ApplySinks<float> apply{
      .sinks = all.of_heads(), .out = all.attention->out.view(), .log_sum_exp = all.attention->log_sum_exp.view()};
  apply.sinks = apply.sinks.first(3);
  EXPECT_THROW(launch_on(2, apply), Error);
}

}  // namespace
}  // namespace lyceum
