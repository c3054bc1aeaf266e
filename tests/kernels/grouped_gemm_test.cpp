#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/reference_gemm.h"
#include "kernels/cpu/tile_gemm.h"
#include "kernels/matrices.h"

namespace lyceum {
namespace {

using test::expect_near;
using test::OwnedMatrix;
using Widths = std::vector<std::int64_t>;

/// Experts with rows of random numbers, in T; padding rows of the inputs are zero, of the outputs NaN.
template <class T>
struct Bank {
  SegmentTable table;
  SegmentLayout x_layout, y_layout;
  std::vector<T> x, y;
  std::vector<std::unique_ptr<OwnedMatrix<T>>> owned;
  std::vector<std::unique_ptr<OwnedMatrix<Accumulator<T>>>> owned_gradients;
  std::vector<Matrix<const T>> weights;
  std::vector<Matrix<Accumulator<T>>> gradients;

  /// `y_given`: y is an input too (a gradient), not an output.
  template <class Like>
  static Bank made(const Widths& rows, const Widths& in, const Widths& out, bool transpose, bool y_given) {
    Bank bank;
    bank.table = SegmentTable(rows);
    const Segments segments = bank.table.view();
    bank.x_layout = SegmentLayout(segments, in);
    bank.y_layout = SegmentLayout(segments, out);
    bank.x.assign(static_cast<std::size_t>(bank.x_layout.size()), T(0));
    bank.y.assign(static_cast<std::size_t>(bank.y_layout.size()), T(y_given ? 0.0f : NAN));
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const auto i = static_cast<std::size_t>(e);
      fill<Like>(bank.x_layout.over(bank.x.data()).segment(segments, e).rows_from(0, rows[i]), "x", e);
      if (y_given) fill<Like>(bank.y_layout.over(bank.y.data()).segment(segments, e).rows_from(0, rows[i]), "y", e);
      bank.owned.push_back(
          std::make_unique<OwnedMatrix<T>>(transpose ? out[i] : in[i], transpose ? in[i] : out[i], e % 3));
      fill<Like>(bank.owned.back()->view(), "w", e);
      bank.weights.push_back(bank.owned.back()->view());
      bank.owned_gradients.push_back(std::make_unique<OwnedMatrix<Accumulator<T>>>(out[i], in[i], e % 2));
      fill<float>(bank.owned_gradients.back()->view(), "dw", e);
      bank.gradients.push_back(bank.owned_gradients.back()->view());
    }
    return bank;
  }

  template <class Like, class E>
  static void fill(const Matrix<E>& matrix, const std::string& name, std::int64_t expert) {
    const Philox random(7, name + std::to_string(expert));
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      for (std::int64_t c = 0; c < matrix.cols; ++c) {
        const float value = test::noise(random, r * matrix.cols + c);
        matrix.row(r)[c] = static_cast<E>(static_cast<float>(static_cast<Like>(value)));
      }
    }
  }

  GroupedGemm<T> product(bool transpose) {
    return {table.view(), x_layout.over(static_cast<const T*>(x.data())), weights, y_layout.over(y.data()), transpose};
  }
  GroupedWeightGrad<T> weight_grad() {
    return {table.view(), y_layout.over(static_cast<const T*>(y.data())),
            x_layout.over(static_cast<const T*>(x.data())), gradients};
  }
  Matrix<T> y_of(std::int64_t e) { return y_layout.over(y.data()).segment(table.view(), e); }
};

template <class T>
double tolerance() {
  if (std::is_same_v<T, double>) return 1e-10;
  return std::is_same_v<T, bfloat16> ? 0.7 : 2e-4;
}

struct Case {
  Widths rows, in, out;
};

const Case uneven{{0, 1, 33, 70, 0, 129, 32, 0}, {7, 33, 341, 64, 5, 853, 1, 9}, {341, 1, 33, 129, 6, 65, 7, 9}};
const Case all_empty{{0, 0}, {8, 8}, {8, 8}};
const Case one{{3}, {4}, {5}};
const Case large{{520, 40}, {130, 20}, {520, 33}};

template <class T>
void check(const Case& c, const CpuStream& stream) {
  for (const bool transpose : {false, true}) {
    auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, transpose, false);
    auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, transpose, false);
    run(stream, bank.product(transpose));
    reference::run(stream, exact.product(transpose));
    for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
      SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " transposed" : ""));
      expect_near(bank.y_of(e), exact.y_of(e), tolerance<T>());
      for (std::int64_t r = c.rows[static_cast<std::size_t>(e)]; r < bank.y_of(e).rows; ++r) {
        for (std::int64_t j = 0; j < bank.y_of(e).cols; ++j)
          ASSERT_EQ(static_cast<float>(bank.y_of(e).row(r)[j]), 0.0f);
      }
    }
  }
  auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, false, true);
  auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, false, true);
  run(stream, bank.weight_grad());
  reference::run(stream, exact.weight_grad());
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_near(bank.gradients[e], exact.gradients[e], std::is_same_v<T, double> ? 1e-10 : 2e-4);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
}

class Grouped : public testing::TestWithParam<Case> {};

TEST_P(Grouped, AgreesWithTheReference) {
  const CpuStream stream(2);
  check<float>(GetParam(), stream);
  check<double>(GetParam(), stream);
  check<bfloat16>(GetParam(), stream);
}

TEST_P(Grouped, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  force_native_bf16(stream, true);
  check<bfloat16>(GetParam(), stream);
}

INSTANTIATE_TEST_SUITE_P(Cases, Grouped, testing::Values(uneven, all_empty, one, large));

template <class T>
void check_repeatable() {
  std::vector<std::vector<T>> results;
  for (const int repeat : {0, 1}) {
    const CpuStream stream(2);
    auto bank = Bank<T>::template made<T>(uneven.rows, uneven.in, uneven.out, false, false);
    run(stream, bank.product(false));
    results.push_back(bank.y);
    ASSERT_EQ(std::memcmp(results[0].data(), bank.y.data(), bank.y.size() * sizeof(T)), 0) << "run " << repeat;
  }
}

TEST(GroupedGemm, GivesTheSameBitsTwice) {
  check_repeatable<float>();
  check_repeatable<bfloat16>();
}

TEST(GroupedGemm, NanStaysInItsRow) {
  const CpuStream stream(2);
  auto bank = Bank<float>::made<float>({5, 6}, {8, 8}, {4, 4}, false, false);
  bank.x[3] = std::numeric_limits<float>::quiet_NaN();
  run(stream, bank.product(false));
  for (std::int64_t e = 0; e < 2; ++e) {
    for (std::int64_t r = 0; r < bank.y_of(e).rows; ++r) {
      for (std::int64_t c = 0; c < 4; ++c) EXPECT_EQ(std::isnan(bank.y_of(e).row(r)[c]), e == 0 && r == 0);
    }
  }
}

TEST(GroupedGemm, RefusesWeightsThatDoNotFit) {
  const CpuStream stream(1);
  auto bank = Bank<float>::made<float>({5}, {8}, {4}, false, false);
  EXPECT_THROW(run(stream, bank.product(true)), Error);
  bank.weights.clear();
  EXPECT_THROW(run(stream, bank.product(false)), Error);
}

}  // namespace
}  // namespace lyceum
