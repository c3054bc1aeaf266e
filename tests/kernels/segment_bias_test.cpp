#include "kernels/segment_bias.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/device_table.h"
#include "core/random.h"
#include "support/grid.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

/// Vectors of a list, one after the other in memory of the tested device.
template <class T>
struct Vectors {
  Tensor values;
  Tensor list;

  Vectors(const std::vector<T>& flat, const std::vector<std::int64_t>& widths)
      : values(tensor_of(tested_stream(), {std::ssize(flat)}, flat)) {
    std::vector<T*> pointers;
    std::int64_t next = 0;
    for (const std::int64_t width : widths) {
      pointers.push_back(values.data<T>() + next);
      next += width;
    }
    list = table_of(tested_stream(), pointers);
  }
  SegmentVectors<T> mutable_list() const { return rows_of<T*>(list); }
  SegmentVectors<const T> const_list() const { return rows_of<const T*>(list); }
};

template <class T>
std::vector<T> random_values(std::int64_t count, const char* purpose) {
  const Grid<T> grid = Grid<T>::random(1, count, purpose);
  return {grid.values.begin(), grid.values.begin() + static_cast<std::ptrdiff_t>(count)};
}

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> all;
  for (const T value : values) all.push_back(to_double(value));
  return all;
}

template <class T>
void expect_values(const Tensor& tensor, const std::vector<double>& expected, double tolerance = tolerance_of<T>) {
  const std::vector<double> actual = doubles(values_of<T>(tested_stream(), tensor));
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::abs(actual[i] - expected[i]) <= tolerance * std::max(std::abs(expected[i]), largest / 10))
        << "element " << i << " is " << actual[i] << ", expected " << expected[i];
  }
}

/// Segments that differ in their numbers of rows and columns.
template <class T>
struct Problem {
  std::vector<std::int64_t> rows, widths;
  SegmentTable table{tested_stream(), rows};
  SegmentLayout layout{tested_stream(), table, widths};
  std::vector<T> values = random_values<T>(layout.size(), "rows");
  Tensor memory = tensor_of(tested_stream(), {layout.size()}, values);

  std::int64_t begin(std::size_t e) const { return table.begin_on_host()[e]; }
  /// Calls f(segment, row, column, index of the element) for all elements that are not padding.
  template <class F>
  void each(const F& f) const {
    std::int64_t offset = 0;
    for (std::size_t e = 0; e < rows.size(); ++e) {
      for (std::int64_t r = 0; r < rows[e]; ++r) {
        for (std::int64_t c = 0; c < widths[e]; ++c) f(e, r, c, static_cast<std::size_t>(offset + r * widths[e] + c));
      }
      offset += (begin(e + 1) - begin(e)) * widths[e];
    }
  }
};

/// The index in flat memory of element c of the vector of segment e.
std::size_t element(const std::vector<std::int64_t>& widths, std::size_t e, std::int64_t c) {
  for (std::size_t before = 0; before < e; ++before) c += widths[before];
  return static_cast<std::size_t>(c);
}

std::int64_t sum_of(const std::vector<std::int64_t>& numbers) {
  std::int64_t sum = 0;
  for (const std::int64_t number : numbers) sum += number;
  return sum;
}

template <class T>
class SegmentBias : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(SegmentBias, Types);

TYPED_TEST(SegmentBias, AgreesWithDoubleInSegmentsOfUnevenRowsAndWidths) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const std::vector<std::int64_t> widths{7, 341, 1, 64, 5, 136};
  Problem<T> problem{.rows = {33, 0, 1, 70, 300, 5}, .widths = widths};
  const Vectors<T> bias(random_values<T>(sum_of(widths), "bias"), widths);
  const Vectors<A> d_bias(random_values<A>(sum_of(widths), "before"), widths);
  std::vector<double> sums = doubles(values_of<A>(tested_stream(), d_bias.values)), biased = doubles(problem.values);
  const std::vector<double> biases = doubles(values_of<T>(tested_stream(), bias.values));
  problem.each([&](std::size_t e, std::int64_t, std::int64_t c, std::size_t i) {
    sums[element(widths, e, c)] += biased[i];
    biased[i] += biases[element(widths, e, c)];
  });
  const SegmentedMatrix<T> y = problem.layout.over(problem.memory.template data<T>());
  launch(tested_stream(),
         SegmentBiasGrad<T>{.segments = problem.table.view(), .dy = y, .d_bias = d_bias.mutable_list()});
  expect_values<A>(d_bias.values, sums, 1e-5);
  launch(tested_stream(), AddSegmentBias<T>{.segments = problem.table.view(), .y = y, .bias = bias.const_list()});
  expect_values<T>(problem.memory, biased);  // padding is unchanged
}

TYPED_TEST(SegmentBias, OfSomeColumns) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const Range columns{3, 8};
  const std::vector<std::int64_t> slices(3, columns.count);
  Problem<T> problem{.rows = {4, 0, 35}, .widths = {13, 13, 13}};
  const Vectors<T> bias(random_values<T>(sum_of(slices), "bias"), slices);
  const Vectors<A> d_bias(std::vector<A>(static_cast<std::size_t>(sum_of(slices))), slices);
  std::vector<double> sums(static_cast<std::size_t>(sum_of(slices))), biased = doubles(problem.values);
  const std::vector<double> biases = doubles(values_of<T>(tested_stream(), bias.values));
  problem.each([&](std::size_t e, std::int64_t, std::int64_t c, std::size_t i) {
    if (c < columns.first || c >= columns.end()) return;
    sums[element(slices, e, c - columns.first)] += biased[i];
    biased[i] += biases[element(slices, e, c - columns.first)];
  });
  const SegmentedMatrix<T> y = problem.layout.over(problem.memory.template data<T>());
  const Segments segments = problem.table.view();
  launch(tested_stream(),
         SegmentBiasGrad<T>{.segments = segments, .dy = y, .d_bias = d_bias.mutable_list(), .columns = columns});
  expect_values<A>(d_bias.values, sums, 1e-5);
  launch(tested_stream(),
         AddSegmentBias<T>{.segments = segments, .y = y, .bias = bias.const_list(), .columns = columns});
  expect_values<T>(problem.memory, biased);
}

/// Rows are picked from tokens; each has a gate, or none, and some tokens are picked by no row.
TYPED_TEST(SegmentBias, OfPickedRowsWithGates) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const Range columns{2, 5};
  const std::int64_t hidden = 9, top_k = 2, tokens = 30;
  const std::vector<std::int64_t> rows{3, 40, 0, 1}, slices(4, columns.count);
  const SegmentTable table(tested_stream(), rows);
  const SegmentLayout layout(tested_stream(), table, std::vector<std::int64_t>(4, hidden));
  const std::vector<T> x = random_values<T>(tokens * hidden, "tokens");
  const std::vector<A> gate = random_values<A>(tokens * top_k, "gates");
  const std::vector<A> before = random_values<A>(tokens * top_k, "before");
  const Vectors<T> bias(random_values<T>(sum_of(slices), "bias"), slices);
  const Vectors<A> d_bias(std::vector<A>(static_cast<std::size_t>(sum_of(slices))), slices);
  const std::vector<double> biases = doubles(values_of<T>(tested_stream(), bias.values));
  std::vector<double> sums(static_cast<std::size_t>(sum_of(slices))), d_gate = doubles(before);
  std::vector<std::int64_t> source(static_cast<std::size_t>(table.total()), -1);
  std::int64_t next = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    for (std::int64_t r = 0; r < rows[e]; ++r, ++next) {
      if (next % 11 == 6) continue;  // a row without token and gate
      const std::int64_t pair = (next * 7) % (tokens * top_k);
      source[static_cast<std::size_t>(table.begin_on_host()[e] + r)] = pair;
      for (std::int64_t c = 0; c < columns.count; ++c) {
        const double dy = to_double(x[static_cast<std::size_t>(pair / top_k * hidden + columns.first + c)]);
        sums[element(slices, e, c)] += to_double(gate[static_cast<std::size_t>(pair)]) * dy;
        d_gate[static_cast<std::size_t>(pair)] += dy * biases[element(slices, e, c)];
      }
    }
  }
  const Stream& stream = tested_stream();
  const Tensor of_tokens = tensor_of(stream, {tokens, hidden}, x), of_gates = tensor_of(stream, {tokens, top_k}, gate);
  const Tensor gradients = tensor_of(stream, {tokens, top_k}, before);
  const Tensor sources = tensor_of(stream, {table.total()}, source);
  const PickedRows<T> picked{of_tokens.matrix<T>(), sources.span<const std::int64_t>(), top_k};
  const SegmentedMatrix<const T> unused = layout.over(static_cast<const T*>(nullptr));
  launch(stream, SegmentBiasGrad<T>{.segments = table.view(),
                                    .dy = unused,
                                    .d_bias = d_bias.mutable_list(),
                                    .columns = columns,
                                    .picked = picked,
                                    .gate_of_row = sources.span<const std::int64_t>(),
                                    .gate = of_gates.span<const A>()});
  launch(stream, SegmentBiasGateGrad<T>{.segments = table.view(),
                                        .dy = unused,
                                        .bias = bias.const_list(),
                                        .gates = {.index = sources.span<const std::int64_t>(),
                                                  .gate = of_gates.span<const A>(),
                                                  .d_gate = gradients.span<A>()},
                                        .columns = columns,
                                        .picked = picked});
  expect_values<A>(d_bias.values, sums, 1e-5);
  expect_values<A>(gradients, d_gate, 1e-5);
}

TEST(SegmentBias, LeavesOutVectorsThatAreNull) {
  Problem<float> problem{.rows = {2, 3}, .widths = {4, 4}};
  const Tensor sum = Tensor::zeros(tested_stream(), DType::f32, {4});
  const Tensor list = table_of(tested_stream(), std::vector<float*>{nullptr, sum.data<float>()});
  launch(tested_stream(), SegmentBiasGrad<float>{.segments = problem.table.view(),
                                                 .dy = problem.layout.over(problem.memory.data<const float>()),
                                                 .d_bias = rows_of<float*>(list)});
  std::vector<double> sums(4);
  problem.each([&](std::size_t e, std::int64_t, std::int64_t c, std::size_t i) {
    if (e == 1) sums[static_cast<std::size_t>(c)] += problem.values[i];
  });
  expect_values<float>(sum, sums, 1e-5);
}

TEST(SegmentBias, NanShows) {
  Problem<float> problem{.rows = {2, 3}, .widths = {4, 4}};
  problem.values[1] = std::numeric_limits<float>::quiet_NaN();  // row 0, column 1
  const Tensor dy = tensor_of(tested_stream(), {problem.layout.size()}, problem.values);
  const Vectors<float> d_bias(std::vector<float>(8), {4, 4});
  launch(tested_stream(), SegmentBiasGrad<float>{.segments = problem.table.view(),
                                                 .dy = problem.layout.over(dy.data<const float>()),
                                                 .d_bias = d_bias.mutable_list()});
  const std::vector<float> sums = values_of<float>(tested_stream(), d_bias.values);
  for (std::size_t c = 0; c < sums.size(); ++c) EXPECT_EQ(std::isnan(sums[c]), c == 1);
}

TEST(SegmentBias, SameBitsOnAnyNumberOfThreads) {
  const std::vector<std::int64_t> widths{300, 20};
  Problem<float> problem{.rows = {700, 3}, .widths = widths};
  std::vector<std::vector<float>> sums;
  for (const int threads : {1, 3}) {
    std::vector<float> values = problem.values;  // in host memory, whatever the tested device
    std::vector<float> sum(320);
    const std::vector<float*> list{sum.data(), sum.data() + 300};
    const SegmentTable table(CpuStream(1), problem.rows);
    const SegmentLayout layout(CpuStream(1), table, widths);
    run(CpuStream(threads),
        SegmentBiasGrad<float>{
            .segments = table.view(), .dy = layout.over(static_cast<const float*>(values.data())), .d_bias = list});
    sums.push_back(sum);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(SegmentBias, RefusesOtherExtents) {
  Problem<float> problem{.rows = {2, 3}, .widths = {4, 4}};
  const SegmentedMatrix<float> y = problem.layout.over(problem.memory.data<float>());
  const Vectors<float> one(std::vector<float>(4), {4}), two(std::vector<float>(8), {4, 4});
  const auto add = [&](const Vectors<float>& bias, const Range& columns) {
    launch(
        tested_stream(),
        AddSegmentBias<float>{.segments = problem.table.view(), .y = y, .bias = bias.const_list(), .columns = columns});
    values_of<float>(tested_stream(), problem.memory);  // waits
  };
  EXPECT_THROW(add(one, {}), Error) << "a bias is missing";
  EXPECT_THROW(add(two, {1, 4}), Error) << "columns that do not exist";
}

}  // namespace
}  // namespace lyceum
