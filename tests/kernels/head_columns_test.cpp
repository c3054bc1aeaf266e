#include "kernels/head_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "kernels/matrices.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using test::as_double;
using test::expect_near;
using test::OwnedMatrix;
using test::same_bits;

/// Heads of matrices: `first`, `step` and `cols` of HeadColumns.
struct HeadRange {
  std::int64_t first, step, cols;
};

template <class T>
constexpr double slack_of = std::is_same_v<T, double>  ? 1e-12
                            : std::is_same_v<T, float> ? 2e-5
                                                       : 0.1;

template <class T>
class HeadColumnsTest : public testing::Test {
 protected:
  static HeadColumns<T> of(OwnedMatrix<T>& matrix, const HeadRange& columns) {
    return {matrix.view(), columns.first, columns.step, columns.cols};
  }
};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(HeadColumnsTest, Types);

TYPED_TEST(HeadColumnsTest, CopiesTheColumnsOfEachHead) {
  using T = TypeParam;
  struct Case {
    std::int64_t tokens, heads;
    HeadRange from, to;
  };
  for (const Case& c : {Case{3, 1, {0, 0, 5}, {0, 0, 5}},
                        {7, 3, {2, 9, 4}, {1, 6, 4}},
                        {40, 4, {0, 0, 16}, {128, 192, 16}},  // columns that all heads share
                        {40, 4, {8, 64, 24}, {16, 48, 24}},
                        {0, 2, {0, 4, 4}, {0, 4, 4}},
                        {2, 0, {0, 4, 4}, {0, 4, 4}}}) {
    for (const std::int64_t gap : {0, 3, 8}) {
      const auto width = [&](const HeadRange& of) {
        return of.first + std::max<std::int64_t>(c.heads - 1, 0) * of.step + of.cols + 2;
      };
      OwnedMatrix<T> from(c.tokens, width(c.from), gap), to(c.tokens, width(c.to), gap);
      from.randomise("from");
      to.randomise("to");
      OwnedMatrix<T> expected(c.tokens, width(c.to));
      expected.randomise("to");
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        for (std::int64_t head = 0; head < c.heads; ++head) {
          for (std::int64_t i = 0; i < c.from.cols; ++i) {
            expected.view().row(t)[c.to.first + head * c.to.step + i] =
                from.view().row(t)[c.from.first + head * c.from.step + i];
          }
        }
      }
      launch_on(2, CopyHeads<T>{.heads = c.heads, .from = this->of(from, c.from), .to = this->of(to, c.to)});
      EXPECT_TRUE(same_bits(to.view(), expected.view())) << c.tokens << " x " << c.heads << ", gap " << gap;
      EXPECT_TRUE(to.gaps_untouched());
    }
  }
}

TYPED_TEST(HeadColumnsTest, AddsUpTheHeads) {
  using T = TypeParam;
  for (const auto& [tokens, heads, from] : {std::tuple<std::int64_t, std::int64_t, HeadRange>{5, 1, {1, 0, 3}},
                                            {33, 7, {2, 5, 4}},
                                            {300, 128, {0, 9, 8}},
                                            {2, 0, {0, 3, 3}},
                                            {0, 3, {0, 3, 3}}}) {
    const std::int64_t width = from.first + heads * from.step + from.cols;
    OwnedMatrix<T> x(tokens, width, 3), y(tokens, from.cols, 1);
    OwnedMatrix<double> expected(tokens, from.cols);
    x.randomise("x");
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < from.cols; ++i) {
        double sum = 0;
        for (std::int64_t head = 0; head < heads; ++head) {
          sum += as_double(x.view().row(t)[from.first + head * from.step + i]);
        }
        expected.view().row(t)[i] = sum;
      }
    }
    launch_on(2, SumHeads<T>{.heads = heads, .from = this->of(x, from), .to = y.view()});
    expect_near(y.view(), expected.view(), 2 * slack_of<T>);
    EXPECT_TRUE(y.gaps_untouched());
  }
}

TYPED_TEST(HeadColumnsTest, MultipliesEachHeadByItsMatrix) {
  using T = TypeParam;
  struct Case {
    std::int64_t tokens, heads, in, out;
    bool transpose;
  };
  for (const Case& c : {Case{1, 1, 1, 1, false},
                        {1, 4, 128, 40, false},
                        {1, 4, 40, 128, true},
                        {3, 5, 7, 33, false},
                        {3, 5, 33, 7, true},
                        {70, 2, 16, 65, true},
                        {0, 2, 4, 4, false},
                        {2, 0, 4, 4, true}}) {
    // Heads of inputs and results, and matrices, with rows and columns between them that do not belong to them.
    const HeadRange in{2, c.in + 3, c.in}, out{1, c.out + 2, c.out};
    const std::int64_t rows = c.transpose ? c.out : c.in, cols = c.transpose ? c.in : c.out, first = 3, step = rows + 2;
    OwnedMatrix<T> x(c.tokens, in.first + c.heads * in.step, 3), weights(first + c.heads * step + rows, cols, 1);
    OwnedMatrix<T> y(c.tokens, out.first + c.heads * out.step, 5);
    x.randomise("x");
    weights.randomise("weights");
    y.randomise("y");
    OwnedMatrix<double> expected(y.view().rows, y.view().cols);
    expected.template randomise<T>("y");
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t head = 0; head < c.heads; ++head) {
        for (std::int64_t o = 0; o < c.out; ++o) {
          double sum = 0;
          for (std::int64_t i = 0; i < c.in; ++i) {
            const std::int64_t row = first + head * step + (c.transpose ? o : i);
            sum += as_double(x.view().row(t)[in.first + head * in.step + i]) *
                   as_double(weights.view().row(row)[c.transpose ? i : o]);
          }
          expected.view().row(t)[out.first + head * out.step + o] = sum;
        }
      }
    }
    launch_on(2, MultiplyHeads<T>{.heads = c.heads,
                                  .x = this->of(x, in),
                                  .weights = weights.view(),
                                  .first_row = first,
                                  .row_step = step,
                                  .transpose = c.transpose,
                                  .y = this->of(y, out)});
    expect_near(y.view(), expected.view(), 2 * slack_of<T>);
    EXPECT_TRUE(y.gaps_untouched());
  }
}

TYPED_TEST(HeadColumnsTest, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  OwnedMatrix<T> x(4, 12), y(4, 12), few(3, 12), weights(6, 3);
  const auto copy = [&](OwnedMatrix<T>& from, const HeadRange& columns, const HeadRange& to) {
    return CopyHeads<T>{.heads = 3, .from = this->of(from, columns), .to = this->of(y, to)};
  };
  EXPECT_NO_THROW(launch_on(1, copy(x, {0, 4, 4}, {0, 4, 4})));
  EXPECT_THROW(launch_on(1, copy(x, {1, 4, 4}, {0, 4, 4})), Error) << "beyond the last column";
  EXPECT_THROW(launch_on(1, copy(x, {0, 4, 3}, {0, 4, 4})), Error) << "other widths";
  EXPECT_THROW(launch_on(1, copy(x, {0, 4, 4}, {0, 3, 4})), Error) << "heads overlap";
  EXPECT_THROW(launch_on(1, copy(few, {0, 4, 4}, {0, 4, 4})), Error) << "fewer tokens";
  const SumHeads<T> sum{.heads = 3, .from = this->of(x, {0, 4, 4}), .to = y.view()};
  EXPECT_THROW(launch_on(1, sum), Error);
  const MultiplyHeads<T> product{.heads = 3,
                                 .x = this->of(x, {0, 4, 2}),
                                 .weights = weights.view(),
                                 .first_row = 1,
                                 .row_step = 2,
                                 .transpose = false,
                                 .y = this->of(y, {0, 4, 3})};
  EXPECT_THROW(launch_on(1, product), Error) << "the last matrix has too few rows";
}

}  // namespace
}  // namespace lyceum
