#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/grouped_gemm.h"
#include "kernels/matrices.h"

namespace lyceum::test {

using Widths = std::vector<std::int64_t>;

/// A bank of experts: weights and rows of random numbers. Padding rows of inputs are 0; outputs are NaN.
template <class T>
struct Bank {
  SegmentTable table;
  SegmentLayout x_layout, y_layout;
  std::vector<T> x, y;
  std::vector<std::unique_ptr<OwnedMatrix<T>>> owned;
  std::vector<std::unique_ptr<OwnedMatrix<Accumulator<T>>>> owned_gradients;
  std::vector<Matrix<const T>> weights;
  std::vector<Matrix<Accumulator<T>>> gradients;
  std::unique_ptr<OwnedMatrix<T>> tokens;
  std::vector<std::int64_t> source;
  PickedRows<T> picked, picked_dy;

  /// Makes a bank of experts with these numbers of rows and widths of x and y. `y_given`: y is an input (a gradient),
  /// not an output. The gaps between the rows of weights are 0, 1 or 2 times `gap` elements, those of gradients 0 or 1
  /// times.
  template <class Like>
  static Bank made(const Widths& rows, const Widths& in, const Widths& out, bool transpose, bool y_given,
                   std::int64_t gap = 1) {
    Bank bank;
    bank.table = SegmentTable(CpuStream(1), rows);
    const Segments segments = bank.table.view();
    bank.x_layout = SegmentLayout(CpuStream(1), bank.table, in);
    bank.y_layout = SegmentLayout(CpuStream(1), bank.table, out);
    bank.x.assign(static_cast<std::size_t>(bank.x_layout.size()), T(0));
    bank.y.assign(static_cast<std::size_t>(bank.y_layout.size()), T(y_given ? 0.0f : NAN));
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const auto i = static_cast<std::size_t>(e);
      fill<Like>(bank.x_layout.over(bank.x.data()).segment(segments, e).rows_from(0, rows[i]), "x", e);
      if (y_given) fill<Like>(bank.y_layout.over(bank.y.data()).segment(segments, e).rows_from(0, rows[i]), "y", e);
      bank.owned.push_back(
          std::make_unique<OwnedMatrix<T>>(transpose ? out[i] : in[i], transpose ? in[i] : out[i], e % 3 * gap));
      fill<Like>(bank.owned.back()->view(), "w", e);
      bank.weights.push_back(bank.owned.back()->view());
      bank.owned_gradients.push_back(std::make_unique<OwnedMatrix<Accumulator<T>>>(out[i], in[i], e % 2 * gap));
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
        const float value = noise(random, r * matrix.cols + c);
        matrix.row(r)[c] = static_cast<E>(static_cast<float>(static_cast<Like>(value)));
      }
    }
  }

  GroupedGemm<T> product(bool transpose) {
    return {table.view(), x_layout.over(static_cast<const T*>(x.data())), weights, y_layout.over(y.data()), transpose,
            picked};
  }
  GroupedWeightGrad<T> weight_grad(bool accumulate = true) {
    return {table.view(),
            y_layout.over(static_cast<const T*>(y.data())),
            x_layout.over(static_cast<const T*>(x.data())),
            gradients,
            picked,
            picked_dy,
            accumulate};
  }
  void fill_gradients(float value) {
    for (const auto& gradient : gradients) {
      for (std::int64_t r = 0; r < gradient.rows; ++r) std::fill_n(gradient.row(r), gradient.cols, value);
    }
  }

  /// Makes the rows of x (of y with `of_dy`) copies of tokens, and some of them zeros. All experts must have the same
  /// width. With `in_place`, the products pick the rows from the tokens, and x (or y) becomes NaN. Padding rows refer
  /// to a token of NaN, which must not be read.
  template <class Like>
  void pick(bool in_place, std::int64_t gap, bool of_dy = false) {
    constexpr std::int64_t divisor = 3;
    const Segments segments = table.view();
    std::vector<T>& copied = of_dy ? y : x;
    const std::int64_t count = segments.total() / 3 + 1;
    std::int64_t width = 0;
    if (!gradients.empty()) width = of_dy ? gradients[0].rows : gradients[0].cols;
    tokens = std::make_unique<OwnedMatrix<T>>(count + 1, width, gap);
    fill<Like>(tokens->view().rows_from(0, count), "token", 0);  // the last token remains NaN
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const Matrix<T> rows = (of_dy ? y_layout : x_layout).over(copied.data()).segment(segments, e);
      const std::int64_t filled = segments.rows[static_cast<std::size_t>(e)];
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const std::int64_t token = r < filled ? (7 * std::ssize(source) + e) % count : count;
        source.push_back(r % 11 == 5 ? -1 - r : token * divisor + r % divisor);
        if (r >= filled) continue;
        const T* from = tokens->view().row(token);
        std::transform(from, from + width, rows.row(r), [&](T value) { return source.back() < 0 ? T(0) : value; });
      }
    }
    if (!in_place) return;
    (of_dy ? picked_dy : picked) = PickedRows<T>{tokens->view(), source, divisor};
    std::fill(copied.begin(), copied.end(), T(std::numeric_limits<float>::quiet_NaN()));
  }

  Matrix<T> y_of(std::int64_t e) { return y_layout.over(y.data()).segment(table.view(), e); }
};

template <class T>
double tolerance() {
  if (std::is_same_v<T, double>) return 1e-10;
  return std::is_same_v<T, bfloat16> ? 0.7 : 2e-4;
}

/// Writes NaN to the padding rows of a segmented input, which kernels must not read.
template <class T>
void poison(const Bank<T>& bank, const SegmentLayout& layout, std::vector<T>& values) {
  const Segments segments = bank.table.view();
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const Matrix<T> rows = layout.over(values.data()).segment(segments, e);
    std::fill(rows.row(segments.rows[static_cast<std::size_t>(e)]), rows.row(rows.rows),
              T(std::numeric_limits<float>::quiet_NaN()));
  }
}

/// Fails the test unless results differ from `exact` by no more than the rounding of the result and of sums of a
/// thousand products in the accumulator type.
template <class T, class Out>
void expect_rounded(const Matrix<Out>& actual, const Matrix<double>& exact) {
  const double relative = std::is_same_v<Out, bfloat16> ? 0x1p-8 : 0;
  const double absolute = std::is_same_v<T, double> ? 1e-10 : 5e-4;
  for (std::int64_t r = 0; r < exact.rows; ++r) {
    for (std::int64_t c = 0; c < exact.cols; ++c) {
      const double wanted = exact.row(r)[c], value = as_double(actual.row(r)[c]);
      ASSERT_TRUE(std::abs(value - wanted) <= absolute + relative * std::abs(wanted))
          << "row " << r << ", column " << c << ": " << value << " instead of " << wanted;
    }
  }
}

/// The numbers of rows and the widths of x and y of the experts of a bank.
struct Case {
  Widths rows, in, out;
  std::int64_t gap = 1;
};

inline const Case uneven{{0, 1, 33, 70, 0, 129, 32, 0}, {7, 33, 341, 64, 5, 853, 1, 9}, {341, 1, 33, 129, 6, 65, 7, 9}};
inline const Case all_empty{{0, 0}, {8, 8}, {8, 8}};
inline const Case one{{3}, {4}, {5}};
inline const Case large{{520, 40}, {130, 20}, {520, 33}};
/// Rows of a multiple of 16 bytes in bf16, as the fastest kernels require; several tiles in each direction.
inline const Case aligned{{200, 0, 64, 129, 7}, {72, 64, 40, 136, 16}, {264, 128, 8, 392, 24}, 8};

/// Rows of equal width, as Bank::pick() requires: not aligned, and aligned.
inline const Case copies{{0, 1, 127, 129, 33, 0, 70}, Widths(7, 33), {341, 1, 33, 129, 6, 65, 7}};
inline const Case aligned_copies{{200, 0, 64, 129, 1, 127, 7}, Widths(7, 72), {264, 128, 8, 392, 24, 40, 16}, 8};

/// The products with picked rows: of x in forward, of dy in dgrad, of x or dy in a weight gradient.
enum class Picking { forward, dgrad, weight_grad_x, weight_grad_dy };
inline constexpr Picking pickings[] = {Picking::forward, Picking::dgrad, Picking::weight_grad_x,
                                       Picking::weight_grad_dy};

/// Returns a bank for such a product. The picked rows have the width c.in.
template <class T, class Like>
Bank<T> picking_bank(const Case& c, Picking which, bool in_place) {
  const bool of_dy = which == Picking::weight_grad_dy, gradient = of_dy || which == Picking::weight_grad_x;
  auto bank = Bank<T>::template made<Like>(c.rows, of_dy ? c.out : c.in, of_dy ? c.in : c.out,
                                           which == Picking::forward, gradient, c.gap);
  bank.template pick<Like>(in_place, c.gap, of_dy);
  return bank;
}

/// Calls run(description of the product).
template <class T, class Run>
void run_picking(Bank<T>& bank, Picking which, Run&& run) {
  if (which == Picking::forward || which == Picking::dgrad) {
    run(bank.product(which == Picking::forward));
  } else {
    run(bank.weight_grad());
  }
}

/// Compares the results of run_picking() with the exact ones.
template <class T>
void expect_right_picking(Bank<T>& bank, Bank<double>& exact, Picking which) {
  for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e << ", product " << static_cast<int>(which));
    const auto i = static_cast<std::size_t>(e);
    if (which == Picking::forward || which == Picking::dgrad) {
      expect_rounded<T>(bank.y_of(e), exact.y_of(e));  // includes padding, which must be 0
    } else {
      expect_rounded<T>(bank.gradients[i], exact.gradients[i]);
      EXPECT_TRUE(bank.owned_gradients[i]->gaps_untouched());
    }
  }
}

/// Computes the weight gradients of two equal banks with run(description): one is added to zeros, the other replaces
/// NaN. Expects equal numbers, and that nothing else is written.
template <class T, class Run>
void expect_written_as_added(Bank<T> added, Bank<T> written, Run&& run) {
  added.fill_gradients(0);
  written.fill_gradients(std::numeric_limits<float>::quiet_NaN());
  run(added.weight_grad());
  run(written.weight_grad(false));
  for (std::size_t e = 0; e < added.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "written gradient of expert " << e);
    expect_near(written.gradients[e], added.gradients[e], 0);
    EXPECT_TRUE(written.owned_gradients[e]->gaps_untouched());
  }
}

/// Computes products of picked rows with run(description) and compares them with the reference in double, which reads
/// copies of the rows.
template <class T, class Run>
void expect_right_picked_products(const Case& c, Run&& run) {
  for (const Picking which : pickings) {
    auto bank = picking_bank<T, T>(c, which, true);
    auto exact = picking_bank<double, T>(c, which, false);
    run_picking(bank, which, run);
    run_picking(exact, which, [](const auto& product) { lyceum::run(CpuStream(2), product); });
    expect_right_picking(bank, exact, which);
    if (which == Picking::forward || which == Picking::dgrad) continue;
    expect_written_as_added(picking_bank<T, T>(c, which, true), picking_bank<T, T>(c, which, true), run);
  }
}

/// Computes all three products of a bank with run(description) and compares them with the reference in double.
template <class T, class Run>
void expect_right_products(const Case& c, Run&& run) {
  const CpuStream stream(2);
  for (const bool transpose : {false, true}) {
    auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, transpose, false, c.gap);
    auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, transpose, false, c.gap);
    run(bank.product(transpose));
    lyceum::run(stream, exact.product(transpose));
    for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
      SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " transposed" : ""));
      expect_near(bank.y_of(e), exact.y_of(e), tolerance<T>());
      for (std::int64_t r = c.rows[static_cast<std::size_t>(e)]; r < bank.y_of(e).rows; ++r) {
        for (std::int64_t j = 0; j < bank.y_of(e).cols; ++j)
          ASSERT_EQ(static_cast<float>(bank.y_of(e).row(r)[j]), 0.0f);
      }
    }
  }
  auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, false, true, c.gap);
  auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, false, true, c.gap);
  run(bank.weight_grad());
  lyceum::run(stream, exact.weight_grad());
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_near(bank.gradients[e], exact.gradients[e], std::is_same_v<T, double> ? 1e-10 : 2e-4);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
  const auto again = [&] { return Bank<T>::template made<T>(c.rows, c.in, c.out, false, true, c.gap); };
  expect_written_as_added(again(), again(), run);
}

}  // namespace lyceum::test
