#include "kernels/activation.h"

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

double swiglu(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }
double gelu(double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }
/// Constants of the clamped SwiGLU that clamp some inputs of the tests.
constexpr double alpha = 1.25, limit = 2.5;
double clamped_swiglu(double gate, double up) {
  const double g = std::min(gate, limit);
  return g / (1 + std::exp(-alpha * g)) * (std::max(-limit, std::min(up, limit)) + 1);
}
ActivationFunction function_of(Activation kind) { return {kind, alpha, limit}; }
/// Returns result `column` of the activation of a row of `given` inputs.
double naive(Activation kind, const double* row, std::int64_t given, std::int64_t column) {
  switch (kind) {
    case Activation::swiglu: return swiglu(row[column], row[column + given / 2]);
    case Activation::gelu: return gelu(row[column]);
    default: return clamped_swiglu(row[column], row[column + given / 2]);
  }
}

constexpr Activation kinds[] = {Activation::swiglu, Activation::gelu, Activation::clamped_swiglu};

/// A bank of segments with different numbers of rows and widths. Padding of inputs is NaN. Each Grid is the flat memory
/// of a segmented matrix, as one row.
template <class T>
struct Bank {
  Activation kind;
  SegmentTable table;
  SegmentLayout narrow, wide;
  Grid<T> x, dy, y, dx, again;

  Bank(Activation kind, std::vector<std::int64_t> rows, const std::vector<std::int64_t>& widths)
      : kind(kind),
        table(CpuStream(1), std::move(rows)),
        narrow(CpuStream(1), table, widths),
        wide(CpuStream(1), table, given(kind, widths)),
        x(1, wide.size()),
        dy(1, narrow.size()),
        y(1, narrow.size()),
        dx(1, wide.size()),
        again(1, narrow.size()) {
    const auto values = Grid<T>::random(1, wide.size(), "x", 0, 3);
    each(wide, [&](std::size_t i, bool padding) { x.values[i] = padding ? poison<T>() : values.values[i]; });
    const auto gradients = Grid<T>::random(1, narrow.size(), "dy");
    each(narrow, [&](std::size_t i, bool padding) { dy.values[i] = padding ? poison<T>() : gradients.values[i]; });
  }
  static std::vector<std::int64_t> given(Activation kind, std::vector<std::int64_t> widths) {
    for (std::int64_t& width : widths) width *= inputs_of(kind);
    return widths;
  }
  /// Calls f(index, is_padding) for every element of a layout.
  template <class F>
  void each(const SegmentLayout& layout, const F& f) const {
    const std::vector<T> memory(static_cast<std::size_t>(layout.size()));
    const SegmentedMatrix<const T> matrix = layout.over<const T>(memory.data());
    for (std::int64_t e = 0; e < table.view().count(); ++e) {
      const auto s = static_cast<std::size_t>(e);
      const Matrix<const T> segment = matrix.segment(table.view(), e);
      for (std::int64_t i = 0; i < segment.size(); ++i) {
        f(static_cast<std::size_t>(matrix.offset[s] + i), i >= table.view().rows[s] * segment.cols);
      }
    }
  }
  void run(int threads = 1) {
    const Segments segments = table.view();
    launch_on(threads, ActivationForward<T>{function_of(kind), segments, wide.over<const T>(x.values.data()),
                                            narrow.over(y.values.data())});
    launch_on(threads, backward());
  }
  ActivationBackward<T> backward() {
    return {function_of(kind),
            table.view(),
            wide.over<const T>(x.values.data()),
            narrow.over<const T>(dy.values.data()),
            wide.over(dx.values.data()),
            narrow.over(again.values.data())};
  }
  std::vector<double> expected() const {
    const SegmentedMatrix<const T> matrix = wide.over<const T>(x.values.data());
    std::vector<double> result;
    for (std::int64_t e = 0; e < table.view().count(); ++e) {
      const Matrix<const T> segment = matrix.segment(table.view(), e);
      for (std::int64_t r = 0; r < segment.rows; ++r) {
        std::vector<double> row;
        for (std::int64_t c = 0; c < segment.cols; ++c) row.push_back(to_double(segment.row(r)[c]));
        const bool padding = r >= table.view().rows[static_cast<std::size_t>(e)];
        for (std::int64_t c = 0; c < segment.cols / inputs_of(kind); ++c) {
          result.push_back(padding ? 0 : naive(kind, row.data(), segment.cols, c));
        }
      }
    }
    return result;
  }
};

template <class T>
class ActivationTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(ActivationTest, Types);

TYPED_TEST(ActivationTest, SegmentsOfUnevenRowsAndWidths) {
  for (const Activation kind : kinds) {
    Bank<TypeParam> bank(kind, {33, 0, 1, 7, 64, 0}, {7, 341, 1, 33, 341, 5});
    bank.run();
    expect_close(bank.y, bank.expected());
    EXPECT_TRUE(bank.y.same_bits(bank.again));
    bank.each(bank.wide,
              [&](std::size_t i, bool padding) { EXPECT_TRUE(!padding || to_double(bank.dx.values[i]) == 0); });
    Bank<double> wide(kind, {33, 0, 1, 7, 64, 0}, {7, 341, 1, 33, 341, 5});
    wide.x = bank.x.widened();
    wide.dy = bank.dy.widened();
    wide.run();
    expect_close(bank.dx, wide.dx.flat(), 2 * tolerance_of<TypeParam>);
  }
}

/// Widths that are multiples of the vector size, with which the device reads several columns at once.
TYPED_TEST(ActivationTest, RowsOfWholePacks) {
  for (const Activation kind : kinds) {
    Bank<TypeParam> bank(kind, {5, 40}, {64, 16});
    bank.run();
    expect_close(bank.y, bank.expected());
    EXPECT_TRUE(bank.y.same_bits(bank.again));
  }
}

TYPED_TEST(ActivationTest, ResultsMayOverwriteTheirGradients) {
  for (const Activation kind : kinds) {
    Bank<TypeParam> apart(kind, {33, 0, 7}, {64, 5, 341}), shared = apart;
    apart.run();
    const SegmentedMatrix<TypeParam> x = shared.wide.over(shared.x.values.data());
    const SegmentedMatrix<TypeParam> dx = shared.wide.over(shared.dx.values.data());
    const SegmentedMatrix<TypeParam> y = shared.narrow.over(shared.dy.values.data());
    launch_on(2, ActivationBackward<TypeParam>{function_of(kind), shared.table.view(), x, y, dx, y});
    EXPECT_TRUE(shared.dx.same_bits(apart.dx));
    EXPECT_TRUE(shared.dy.same_bits(apart.y));
  }
}

/// Checks y = gate · activation(x): dx is that of gate · dy, and the gradient of the gate is Σ dy · activation(x).
/// Gates are in the reverse order of rows; some rows have no gate, and some gates no row.
TYPED_TEST(ActivationTest, RowsWithGates) {
  using A = Accumulator<TypeParam>;
  const std::vector<std::int64_t> rows{33, 0, 1, 7, 64, 0}, widths{7, 341, 1, 33, 341, 5};
  for (const Activation kind : kinds) {
    Bank<TypeParam> bank(kind, rows, widths);
    Bank<double> exact(kind, rows, widths);
    exact.x = bank.x.widened();
    exact.dy = bank.dy.widened();
    const Segments segments = bank.table.view();
    const auto gate = Grid<A>::random(1, segments.total() + 2, "gate");
    std::vector<double> again = bank.expected(), d_gate(gate.values.size());
    std::vector<std::int64_t> index;
    for (std::size_t e = 0, i = 0; e < rows.size(); ++e) {
      for (std::int64_t r = 0; r < segments.begin[e + 1] - segments.begin[e]; ++r) {
        const std::int64_t place = segments.total() + 1 - std::ssize(index);
        index.push_back(r >= rows[e] || r % 9 == 4 ? -1 : place);
        const double g = index.back() < 0 ? 0 : gate.at(0, place);
        for (std::int64_t c = 0; c < widths[e]; ++c, ++i) {
          if (index.back() >= 0) d_gate[static_cast<std::size_t>(place)] += exact.dy.values[i] * again[i];
          exact.dy.values[i] *= g;
          again[i] *= g;
        }
      }
    }
    Grid<A> gradient(1, std::ssize(d_gate));
    ActivationBackward<TypeParam> work = bank.backward();
    work.gates = {.index = index, .gate = gate.values, .d_gate = gradient.values};
    launch_on(2, work);
    exact.run();
    expect_close(bank.dx, exact.dx.flat(), 2 * tolerance_of<TypeParam>);
    expect_close(bank.again, again);
    expect_close(gradient, d_gate, 10 * tolerance_of<A>);
    index[0] = std::ssize(d_gate);
    EXPECT_THROW(launch_on(2, work), Error);
  }
}

TYPED_TEST(ActivationTest, SameBitsOnAnyNumberOfThreads) {
  for (const Activation kind : kinds) {
    Bank<TypeParam> one(kind, {100, 3, 77}, {33, 7, 65}), two = one;
    one.run(1);
    two.run(2);
    EXPECT_TRUE(one.y.same_bits(two.y));
    EXPECT_TRUE(one.dx.same_bits(two.dx));
  }
}

TYPED_TEST(ActivationTest, NothingToDo) {
  for (const Activation kind : kinds) {
    Bank<TypeParam> no_segments(kind, {}, {}), no_rows(kind, {0, 0}, {3, 4});
    no_segments.run();
    no_rows.run();
  }
}

/// Inputs beyond the limit have the value of the limit and no gradient; those at the limit have one.
TYPED_TEST(ActivationTest, ClampsGatesFromAboveAndUpsOnBothSides) {
  using T = TypeParam;
  Bank<T> bank(Activation::clamped_swiglu, {1}, {6});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> gates{3, -200, 2.5, 1, 1, nan}, ups{1, 1, 0.5, 2.75, -100, 1};
  for (std::size_t c = 0; c < 6; ++c) {
    bank.x.values[c] = static_cast<T>(static_cast<float>(gates[c]));
    bank.x.values[c + 6] = static_cast<T>(static_cast<float>(ups[c]));
    bank.dy.values[c] = static_cast<T>(1.0f);
  }
  bank.run();
  for (std::int64_t c = 0; c < 5; ++c) {
    const auto i = static_cast<std::size_t>(c);
    EXPECT_NEAR(bank.y.at(0, c), clamped_swiglu(gates[i], ups[i]), 0.05) << c;
    if (c == 1) {  // far below the limit, derivatives are tiny or underflow
      EXPECT_NEAR(bank.dx.at(0, c), 0, 1e-30);
      EXPECT_NEAR(bank.dx.at(0, c + 6), 0, 1e-30);
      continue;
    }
    EXPECT_EQ(bank.dx.at(0, c) == 0, gates[i] > limit) << c;
    EXPECT_EQ(bank.dx.at(0, c + 6) == 0, std::abs(ups[i]) > limit) << c;
  }
  EXPECT_TRUE(is_nan(bank.y.at(0, 5)) && is_nan(bank.dx.at(0, 5)) && is_nan(bank.dx.at(0, 11)));
}

TYPED_TEST(ActivationTest, LargeNumbersAndNan) {
  using T = TypeParam;
  for (const Activation kind : {Activation::swiglu, Activation::gelu}) {
    Bank<T> bank(kind, {1}, {4});
    const std::vector<float> values{-200, 200, -3e38f, std::numeric_limits<float>::quiet_NaN()};
    for (std::size_t c = 0; c < 4; ++c) {
      bank.x.values[c] = static_cast<T>(values[c]);
      if (kind == Activation::swiglu) bank.x.values[c + 4] = static_cast<T>(1.0f);
      bank.dy.values[c] = static_cast<T>(1.0f);
    }
    bank.run();
    EXPECT_NEAR(bank.y.at(0, 0), 0, 1e-37);
    EXPECT_EQ(bank.y.at(0, 1), 200);
    EXPECT_EQ(bank.y.at(0, 2), 0);
    EXPECT_TRUE(is_nan(bank.y.at(0, 3)));
    EXPECT_NEAR(bank.dx.at(0, 0), 0, 1e-37);
    EXPECT_EQ(bank.dx.at(0, 1), 1);
    EXPECT_EQ(bank.dx.at(0, 2), 0);
    EXPECT_TRUE(is_nan(bank.dx.at(0, 3)));
  }
}

TEST(Activation, GradientByFiniteDifferences) {
  for (const Activation kind : kinds) {
    Bank<double> bank(kind, {32}, {3});
    bank.run();
    const std::vector<double> dy = bank.dy.flat();
    const std::int64_t given = 3 * inputs_of(kind);
    const auto f = [&](const std::vector<double>& x) {
      double sum = 0;
      for (std::int64_t r = 0; r < 32; ++r) {
        for (std::int64_t c = 0; c < 3; ++c) {
          sum += naive(kind, x.data() + given * r, given, c) * dy[static_cast<std::size_t>(3 * r + c)];
        }
      }
      return sum;
    };
    expect_gradient(f, bank.x.flat(), bank.dx.flat());
  }
}

TEST(Activation, RowsThatAreNoMultipleOfTheAlignment) {
  const std::vector<std::int64_t> begin{0, 5, 47}, rows{5, 42}, offset{0, 10}, wide_offset{0, 20}, width{2, 3},
      wide{4, 6};
  const auto x = Grid<float>::random(1, 5 * 4 + 42 * 6, "x");
  Grid<float> y(1, 5 * 2 + 42 * 3);
  launch_on(
      2,
      ActivationForward<float>{
          Activation::swiglu, {begin, rows}, {x.values.data(), wide_offset, wide}, {y.values.data(), offset, width}});
  std::vector<double> expected;
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 2; ++c) expected.push_back(swiglu(x.at(0, 4 * r + c), x.at(0, 4 * r + c + 2)));
  }
  for (std::int64_t r = 0; r < 42; ++r) {
    for (std::int64_t c = 0; c < 3; ++c) {
      expected.push_back(swiglu(x.at(0, 20 + 6 * r + c), x.at(0, 20 + 6 * r + c + 3)));
    }
  }
  expect_close(y, expected);
}

TEST(Activation, RefusesOtherWidths) {
  for (const Activation kind : kinds) {
    Bank<float> bank(kind, {3}, {4});
    const SegmentLayout odd(CpuStream(1), bank.table, {3});
    EXPECT_THROW(
        launch_on(1, ActivationForward<float>{kind, bank.table.view(), odd.over<const float>(bank.x.values.data()),
                                              bank.narrow.over(bank.y.values.data())}),
        Error);
  }
}

}  // namespace
}  // namespace lyceum
