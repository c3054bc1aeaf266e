#include "autograd/adapters.h"

#include <gtest/gtest.h>

#include "core/copy.h"
#include "kernels/tensor_kernels.h"
#include "support/finite_difference.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

constexpr std::int64_t rank = 2, columns = 5;
constexpr double adapter_scale = 1.5;

/// A parameter that stacks the matrices q [4, 5], without an adapter, and k [3, 5], with one, and has a row of padding
/// after q. Another parameter holds columns 1 to 3 of o [6, 7], with a padding of two columns after each row.
struct AdaptedUnit {
  ParameterUnit unit{"unit", ParameterUnit::Group::dense, 0, ParameterUnit::Role::adapted};
  ParameterUnit own{"own", ParameterUnit::Group::dense}, whole{"whole", ParameterUnit::Group::replicated};

  explicit AdaptedUnit(DType type) {
    const auto matrix = [](std::string name, std::int64_t rows, std::int64_t cols) {
      return whole_parameter(std::move(name), {rows, cols}, 0.5, true);
    };
    Parameter& stack = unit.add(stacked_parameter(
        "stack", {{.name = "q", .rows = 4, .part = {0, 4}, .room = 5}, {.name = "k", .rows = 3, .part = {0, 3}}},
        columns, 0.5));
    Parameter& o = unit.add(sharded_parameter("o", {6, 7}, 1, {1, 3}, 0.5, 5));
    // A unit of factors begins with another parameter, so that no factor begins at element 0.
    whole.add(matrix("other", 1, 3));
    stack.adapters = {
        {.slice = 1, .a = added(whole, matrix("a of k", rank, columns)), .b = added(own, matrix("b of k", 3, rank))}};
    o.adapters = {
        {.slice = 0, .a = added(own, matrix("a of o", rank, 3)), .b = added(whole, matrix("b of o", 6, rank))}};
    unit.set_adapter_scale(adapter_scale);
    for (ParameterUnit* each : {&unit, &own, &whole}) {
      each->allocate(tested_stream(), type, true);
      each->initialize(tested_stream(), 1);
    }
  }
  static LowRankAdapter::Factor added(ParameterUnit& unit, Parameter parameter) {
    Parameter& made = unit.add(std::move(parameter));
    return {&made, unit.first_of(unit.parameters().size() - 1)};
  }
};

std::vector<double> values(const Tensor& tensor) {
  const Tensor wide = Tensor::empty(tested_stream(), DType::f64, tensor.shape());
  convert(tested_stream(), tensor, wide);
  return values_of<double>(tested_stream(), wide);
}

/// Returns the values of the unit with adapters, from the formula. `factors`: values of `own` and `whole`, in order.
std::vector<double> expected_values(const AdaptedUnit& adapted, std::vector<double> weights,
                                    const std::vector<double>& factors) {
  const auto element = [&](const LowRankAdapter::Factor& factor, std::int64_t i, std::int64_t j) {
    const std::int64_t before = factor.parameter->unit == &adapted.own ? 0 : adapted.own.size();
    return factors[static_cast<std::size_t>(before + factor.first + i * factor.parameter->shape[1] + j)];
  };
  for (std::size_t p = 0; p < 2; ++p) {
    const Parameter& parameter = *adapted.unit.parameters()[p];
    const LowRankAdapter& adapter = parameter.adapters[0];
    const ParameterSlice& slice = parameter.slices[adapter.slice];
    for (std::int64_t i = 0; i < slice.extent[0]; ++i) {
      for (std::int64_t j = 0; j < slice.extent[1]; ++j) {
        const std::int64_t at = adapted.unit.first_of(p) + slice.first + i * slice.in_memory()[1] + j;
        for (std::int64_t k = 0; k < rank; ++k) {
          weights[static_cast<std::size_t>(at)] += adapter_scale * element(adapter.b, i, k) * element(adapter.a, k, j);
        }
      }
    }
  }
  return weights;
}

std::vector<double> factors_of(const Tensor& own, const Tensor& whole) {
  std::vector<double> all = values(own), rest = values(whole);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

TEST(Adapters, AreAddedToTheirSlices) {
  for (const auto& [type, tolerance] : {std::pair(DType::f64, 1e-14), {DType::f32, 1e-6}, {DType::bf16, 1e-2}}) {
    const AdaptedUnit adapted(type);
    const std::vector<double> before = values(adapted.unit.values());
    const auto expected = expected_values(adapted, before, factors_of(adapted.own.values(), adapted.whole.values()));
    add_adapters(tested_stream(), adapted.unit);
    const std::vector<double> after = values(adapted.unit.values());
    int changed = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_NEAR(after[i], expected[i], tolerance) << i;
      changed += after[i] != before[i];
    }
    EXPECT_GT(changed, 0);
    EXPECT_LE(changed, 3 * columns + 6 * 3);
  }
}

/// The gradients of A and B are those of L = Σ dW · (W + scale · B · A), and are added to what is there.
TEST(Adapters, HaveTheGradientsOfFiniteDifferences) {
  const AdaptedUnit adapted(DType::f64);
  const Stream& stream = tested_stream();
  std::vector<double> dw(static_cast<std::size_t>(adapted.unit.size()));
  const Philox random(3, "dw");
  for (std::size_t i = 0; i < dw.size(); ++i) dw[i] = random.normal(i);
  copy_to_device(stream, adapted.unit.gradients().span<double>(), std::span<const double>(dw));
  const std::vector<double> weights = values(adapted.unit.values());
  const auto loss = [&](const std::vector<double>& factors) {
    const std::vector<double> adapted_weights = expected_values(adapted, weights, factors);
    double sum = 0;
    for (std::size_t i = 0; i < dw.size(); ++i) sum += dw[i] * adapted_weights[i];
    return sum;
  };
  add_adapter_gradients(stream, adapted.unit);
  const std::vector<double> factors = factors_of(adapted.own.values(), adapted.whole.values());
  expect_gradient(loss, factors, factors_of(adapted.own.gradients(), adapted.whole.gradients()));
  add_adapter_gradients(stream, adapted.unit);
  std::vector<double> twice = factors_of(adapted.own.gradients(), adapted.whole.gradients());
  for (double& each : twice) each /= 2;
  expect_gradient(loss, factors, twice);
}

}  // namespace
}  // namespace lyceum
