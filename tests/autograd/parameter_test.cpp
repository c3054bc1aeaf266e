#include "autograd/parameter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "autograd/embedding.h"
#include "autograd/linear.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

void begin_with_nan(const Stream& stream, ParameterUnit& unit) {
  copy_to_device(stream, unit.gradients().span<double>(),
                 std::span<const double>(std::vector(static_cast<std::size_t>(unit.gradients().size()),
                                                     std::numeric_limits<double>::quiet_NaN())));
  unit.begin_gradients(stream);
}

/// Returns the elements of a unit's gradients that are zero.
std::vector<std::int64_t> zeros_of(const Stream& stream, const ParameterUnit& unit) {
  const std::vector<double> values = values_of<double>(stream, unit.gradients());
  std::vector<std::int64_t> zeros;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    EXPECT_EQ(values[i], 0) << i;
    zeros.push_back(static_cast<std::int64_t>(i));
  }
  return zeros;
}

/// Matrices become empty, also one without columns, which a launch has in common with others. Vectors, and padding
/// before, between and after parameters, become zero.
TEST(ParameterUnit, BeginsGradientsOfMatricesEmpty) {
  const Stream& stream = tested_stream();
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& vector = unit.add(whole_parameter("vector", {32}, 1.0, true));
  Parameter& matrix = unit.add(whole_parameter("matrix", {8, 4}, 1.0, true));
  Parameter& next = unit.add(whole_parameter("next", {5, 5}, 1.0, true));  // 7 elements of padding follow
  Parameter& none = unit.add(whole_parameter("none", {8, 0}, 1.0, true));
  Parameter& blocks = unit.add(whole_parameter("blocks", {2, 2, 8}, 1.0, true));
  Parameter& last = unit.add(whole_parameter("last", {1, 31}, 1.0, true));
  unit.allocate(stream, DType::f64, true);
  unit.set_gradients(Tensor::zeros(stream, DType::f64, {unit.size() + 2}));  // ranks pad units further
  for (const auto& parameter : unit.parameters()) EXPECT_FALSE(parameter->gradient_empty) << parameter->name;
  begin_with_nan(stream, unit);
  std::vector<std::int64_t> expected;
  const auto add = [&](std::int64_t first, std::int64_t end) {
    for (; first < end; ++first) expected.push_back(first);
  };
  add(0, 32), add(64 + 25, 128), add(128 + 31, 162);
  EXPECT_EQ(zeros_of(stream, unit), expected);
  for (const Parameter* parameter : {&matrix, &next, &none, &last}) {
    EXPECT_TRUE(parameter->gradient_empty) << parameter->name;
  }
  for (const Parameter* parameter : {&vector, &blocks}) EXPECT_FALSE(parameter->gradient_empty) << parameter->name;
  next.clear_empty_gradient(stream);
  none.clear_empty_gradient(stream);
  EXPECT_TRUE(vector.contribute());
  EXPECT_FALSE(matrix.contribute());
  EXPECT_TRUE(matrix.contribute());
  add(64, 64 + 25);
  std::ranges::sort(expected);
  EXPECT_EQ(zeros_of(stream, unit), expected);
  unit.set_gradients(Tensor::zeros(stream, DType::f64, {unit.size()}));
  EXPECT_FALSE(last.gradient_empty);
}

TEST(ParameterUnit, ClearsGradientsAsAWholeIfTheyHaveManyRanges) {
  const Stream& stream = tested_stream();
  ParameterUnit unit("unit", ParameterUnit::Group::expert);
  for (int e = 0; e < 20; ++e) {
    unit.add(whole_parameter("weight " + std::to_string(e), {8, 4}, 1.0, true));
    unit.add(whole_parameter("bias " + std::to_string(e), {8}, 1.0, true));
  }
  unit.allocate(stream, DType::f64, true);
  begin_with_nan(stream, unit);
  EXPECT_EQ(std::ssize(zeros_of(stream, unit)), unit.size());
  for (const auto& parameter : unit.parameters()) EXPECT_FALSE(parameter->gradient_empty);
}

/// A table that is also the weight of a linear layer: one contribution can write, the other can only add. The table's
/// other uses in the same step, and its last row, which no token has, must not see what the memory held before.
TEST(ParameterUnit, SharedWeightsAddUpFromEmpty) {
  const Stream& stream = tested_stream();
  const auto gradient = [&](bool empty, bool head_first) {
    ParameterUnit unit("unit", ParameterUnit::Group::dense);
    Parameter& table = unit.add(whole_parameter("table", {4, 3}, 1.0, true));
    unit.allocate(stream, DType::f64, true);
    unit.initialize(stream, 1);
    if (empty) begin_with_nan(stream, unit);
    const auto backward = [&](bool of_head) {
      Tape tape(stream);
      const Tensor ones = tensor_of(stream, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
      const Variable y = of_head
                             ? tape.apply(Linear{&table}, tape.leaf(ones))
                             : tape.apply(Embedding{&table, tensor_of(stream, {2}, std::vector<std::int32_t>{2, 0})});
      const std::int64_t size = y.value.size();
      std::vector<double> dy(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = Philox(3, of_head ? "head" : "table").normal(i);
      tape.backward({{y, tensor_of(stream, y.value.shape(), dy)}});
    };
    for (const bool of_head : {head_first, !head_first, head_first}) backward(of_head);
    return values_of<double>(stream, table.gradient);
  };
  for (const bool head_first : {false, true}) EXPECT_EQ(gradient(true, head_first), gradient(false, head_first));
}

}  // namespace
}  // namespace lyceum
