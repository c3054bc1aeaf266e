#include "kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/device_table.h"
#include "kernels/gemm_cases.h"
#include "support/grid.h"
#include "support/launch_on.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

using test::check_gemm;
using test::odd_sizes;
using test::OwnedMatrix;
using test::same_bits;

void check_all_types(const test::GemmCase& c) {
  const auto run_gemm = [](const auto& gemm) { launch_on(2, gemm); };
  check_gemm<float>(c, run_gemm);
  check_gemm<double>(c, run_gemm);
  check_gemm<bfloat16>(c, run_gemm);
  check_gemm<bfloat16, float>(c, run_gemm);
}

TEST(Gemm, AgreesWithTheReferenceInEveryLayout) {
  for (const auto& [m, k, n] : odd_sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      check_all_types({m, k, n, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3});
    }
  }
}

/// A GPU divides such sums into chunks; the number of chunks need not divide k.
TEST(Gemm, LongSumsOfFewResults) {
  for (const std::int64_t k : {2047, 2048, 2049, 4311}) {
    for (int flags = 0; flags < 8; ++flags) {
      const test::GemmCase c{35, k, 9, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
      const auto run_gemm = [](const auto& gemm) { launch_on(2, gemm); };
      check_gemm<float>(c, run_gemm);
      check_gemm<bfloat16, float>(c, run_gemm);
    }
  }
  check_all_types({1, 4096, 64, true, false, true});
  check_all_types({130, 2100, 1, true, false, false});
}

TEST(Gemm, EmptyExtents) {
  for (const bool accumulate : {false, true}) {
    check_all_types({0, 5, 7, false, false, accumulate});
    check_all_types({5, 7, 0, false, true, accumulate});
    check_all_types({5, 0, 7, true, false, accumulate});  // k = 0: c becomes 0, or is unchanged with accumulate
  }
}

TEST(Gemm, NanReachesItsRowAndColumnOnly) {
  OwnedMatrix<float> a(40, 50), b(50, 60), c(40, 60);
  a.randomise("a"), b.randomise("b");
  a.view().row(3)[7] = std::numeric_limits<float>::quiet_NaN();
  b.view().row(9)[11] = std::numeric_limits<float>::infinity();
  launch_on(2, Gemm<float>{a.view(), b.view(), c.view()});
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 60; ++j) {
      EXPECT_EQ(std::isfinite(c.view().row(i)[j]), i != 3 && j != 11) << i << ", " << j;
    }
  }
}

template <class T, class Out>
void check_repeatable(std::int64_t m, std::int64_t k, std::int64_t n) {
  OwnedMatrix<T> a(m, k), b(n, k);
  OwnedMatrix<Out> first(m, n), second(m, n);
  a.randomise("a"), b.randomise("b");
  for (auto* c : {&first, &second}) {
    launch_on(2, Gemm<T, Out>{.a = a.view(), .b = b.view(), .c = c->view(), .transpose_b = true});
  }
  EXPECT_TRUE(same_bits(first.view(), second.view()));
}

TEST(Gemm, GivesTheSameBitsTwice) {
  check_repeatable<float, float>(700, 900, 333);
  check_repeatable<bfloat16, bfloat16>(700, 900, 333);
  check_repeatable<bfloat16, float>(97, 1200, 600);
  check_repeatable<bfloat16, float>(10, 5000, 21);
}

/// Compares a weight gradient that replaces NaN with one that is added to zeros.
template <class T>
void check_written_as_added(std::int64_t tokens, std::int64_t out, std::int64_t in) {
  SCOPED_TRACE(testing::Message() << tokens << " x " << out << " x " << in << " " << name_of(dtype_of<T>));
  using A = Accumulator<T>;
  OwnedMatrix<T> dy(tokens, out), x(tokens, in);
  OwnedMatrix<A> added(out, in), written(out, in);
  dy.randomise("dy"), x.randomise("x");
  std::fill_n(added.view().data, added.view().size(), A(0));
  const auto add = [&](const Matrix<A>& to, bool accumulate) {
    launch_on(2, Gemm<T, A>{.a = dy.view(), .b = x.view(), .c = to, .transpose_a = true, .accumulate = accumulate});
  };
  add(added.view(), true);
  add(written.view(), false);
  test::expect_near(written.view(), added.view(), 0);
}

TEST(Gemm, WritesTheNumbersThatItAddsToZeros) {
  for (const auto& [tokens, out, in] : odd_sizes) {
    check_written_as_added<float>(tokens, out, in);
    check_written_as_added<double>(tokens, out, in);
    check_written_as_added<bfloat16>(tokens, out, in);
  }
  check_written_as_added<float>(1100, 100, 200);
  check_written_as_added<bfloat16>(2100, 100, 200);
  check_written_as_added<bfloat16>(0, 5, 7);
}

TEST(Gemm, RefusesShapesThatDoNotFit) {
  OwnedMatrix<float> a(3, 4), b(5, 6), c(3, 6);
  EXPECT_THROW(launch_on(2, Gemm<float>{a.view(), b.view(), c.view()}), Error);
}

/// Computes a batch of stacked products, with every combination of transposes, and compares it with single products.
template <class T, class Out>
void check_batch(std::int64_t count, const test::GemmCase& c) {
  SCOPED_TRACE(testing::Message() << count << " products " << c.m << " x " << c.k << " x " << c.n);
  const std::int64_t a_rows = c.transpose_a ? c.k : c.m, a_cols = c.transpose_a ? c.m : c.k;
  const std::int64_t b_rows = c.transpose_b ? c.n : c.k, b_cols = c.transpose_b ? c.k : c.n;
  const auto a = Grid<T>::random(count * a_rows, a_cols, "a", c.gap),
             b = Grid<T>::random(count * b_rows, b_cols, "b", c.gap);
  const auto start = Grid<Out>::random(count * c.m, c.n, "c", c.gap);
  const Stream& stream = tested_stream();
  const Tensor a_memory = table_of(stream, a.values), b_memory = table_of(stream, b.values),
               c_memory = table_of(stream, start.values);
  launch(stream, GemmBatch<T, Out>{{.a = {rows_of<T>(a_memory).data(), a_rows, a_cols, a.stride},
                                    .b = {rows_of<T>(b_memory).data(), b_rows, b_cols, b.stride},
                                    .c = {writable_rows_of<Out>(c_memory).data(), c.m, c.n, start.stride},
                                    .transpose_a = c.transpose_a,
                                    .transpose_b = c.transpose_b,
                                    .accumulate = c.accumulate},
                                   count});
  Grid<Out> result = start;
  copy_to_host(stream, result.values.data(), c_memory.raw(), c_memory.bytes());
  EXPECT_TRUE(result.gaps_untouched());
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t row = 0; row < c.m; ++row) {
      for (std::int64_t col = 0; col < c.n; ++col) {
        double expected = c.accumulate ? start.at(i * c.m + row, col) : 0;
        for (std::int64_t k = 0; k < c.k; ++k) {
          expected += (c.transpose_a ? a.at(i * c.k + k, row) : a.at(i * c.m + row, k)) *
                      (c.transpose_b ? b.at(i * c.n + col, k) : b.at(i * c.k + k, col));
        }
        const double error = std::abs(result.at(i * c.m + row, col) - expected);
        const double tolerance = test::gemm_tolerance<T, Out>(c.k);
        ASSERT_TRUE(error <= tolerance) << name_of(dtype_of<T>) << " " << i << ": " << row << ", " << col << ": error "
                                        << error << " of " << expected;
      }
    }
  }
}

TEST(GemmBatch, AgreesWithProductsInDouble) {
  for (const std::int64_t count : {0, 1, 2, 7}) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool a = (flags & 1) != 0, b = (flags & 2) != 0, accumulate = (flags & 4) != 0;
      for (const auto& c : {test::GemmCase{33, 20, 17, a, b, accumulate, flags % 3},
                            test::GemmCase{64, 64, 64, a, b, accumulate}, test::GemmCase{3, 0, 5, a, b, accumulate}}) {
        check_batch<float, float>(count, c);
        check_batch<double, double>(count, c);
        check_batch<bfloat16, bfloat16>(count, c);
        check_batch<bfloat16, float>(count, c);
      }
    }
  }
}

/// Compares SplitWeightGrad, dw += dyᵀ · x with dy split into two parts, with the sum in double.
void check_split(std::int64_t rows, std::int64_t out, std::int64_t in, std::int64_t gap, std::int64_t padding = 0) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << out << " + " << padding << " x " << in << ", gap " << gap);
  const std::int64_t width = out + padding;
  OwnedMatrix<float> dy(rows, out), dw(out, in, gap);
  OwnedMatrix<bfloat16> parts(rows, 2 * width, gap), x(rows, in, gap);
  OwnedMatrix<double> expected(out, in);
  dy.randomise("dy"), x.randomise("x"), dw.randomise("dw"), expected.randomise<float>("dw");
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < out; ++i) {
      const float value = dy.view().row(t)[i];
      const auto high = static_cast<bfloat16>(value);
      parts.view().row(t)[i] = high;
      parts.view().row(t)[width + i] = static_cast<bfloat16>(value - static_cast<float>(high));
      for (std::int64_t j = 0; j < in; ++j) {
        expected.view().row(i)[j] += double{value} * static_cast<float>(x.view().row(t)[j]);
      }
    }
  }
  launch_on(2, SplitWeightGrad{.parts = parts.view(), .x = x.view(), .dw = dw.view()});
  // The two parts have 16 bits of dy. With the first part alone, which has 8, the error would be 20 times as large.
  test::expect_near(dw.view(), expected.view(), 5e-5 * (std::sqrt(static_cast<double>(rows)) + 1));
  EXPECT_TRUE(dw.gaps_untouched());
  OwnedMatrix<float> added(out, in), written(out, in, gap);  // written holds NaN
  std::fill_n(added.view().data, added.view().size(), 0.0F);
  launch_on(2, SplitWeightGrad{.parts = parts.view(), .x = x.view(), .dw = added.view()});
  launch_on(2, SplitWeightGrad{.parts = parts.view(), .x = x.view(), .dw = written.view(), .accumulate = false});
  test::expect_near(written.view(), added.view(), 0);
  EXPECT_TRUE(written.gaps_untouched());
}

TEST(SplitWeightGrad, AgreesWithTheSumInDouble) {
  check_split(0, 3, 5, 0);
  check_split(1, 1, 1, 0);
  check_split(100, 64, 40, 0);
  check_split(33, 7, 9, 3);
  check_split(2050, 5, 33, 1);
  check_split(4999, 1, 130, 2);
  check_split(4096, 64, 40, 0);
  check_split(100, 63, 40, 0, 1);
  check_split(4999, 5, 33, 2, 3);
}

TEST(SplitWeightGrad, GivesTheSameBitsTwice) {
  OwnedMatrix<bfloat16> parts(4500, 12), x(4500, 50);
  OwnedMatrix<float> first(6, 50), second(6, 50);
  parts.randomise("parts"), x.randomise("x");
  for (auto* dw : {&first, &second}) {
    dw->randomise("dw");
    launch_on(2, SplitWeightGrad{.parts = parts.view(), .x = x.view(), .dw = dw->view()});
  }
  EXPECT_TRUE(same_bits(first.view(), second.view()));
}

TEST(SplitWeightGrad, RefusesShapesThatDoNotFit) {
  OwnedMatrix<bfloat16> parts(9, 6), x(9, 5);
  OwnedMatrix<float> dw(6, 5), narrow(3, 4);
  EXPECT_THROW(launch_on(2, SplitWeightGrad{parts.view(), x.view(), dw.view()}), Error);
  EXPECT_THROW(launch_on(2, SplitWeightGrad{parts.view(), x.view(), narrow.view()}), Error);
}

}  // namespace
}  // namespace lyceum
