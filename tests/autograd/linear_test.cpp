#include "autograd/linear.h"

#include <gtest/gtest.h>

#include "autograd/cast.h"
#include "core/copy.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

/// A weight of a unit that is not trained passes gradients to its input and has none.
TEST(PreciseLinear, PassesGradientsThroughAWeightThatIsNotTrained) {
  const Stream& stream = tested_stream();
  for (const DType type : {DType::f32, DType::bf16}) {
    ParameterUnit unit("unit", ParameterUnit::Group::replicated, 0, ParameterUnit::Role::buffer);
    unit.add(whole_parameter("w", {4, 3}, 1.0, true));
    unit.allocate(stream, type, true);
    unit.initialize(stream, 1);
    EXPECT_EQ(unit.values().dtype(), DType::f32);
    EXPECT_FALSE(unit.gradients().defined());
    Tape tape(stream);
    int final_gradients = 0;
    tape.on_gradient_final([&](Parameter&) { ++final_gradients; });
    const Tensor ones = tensor_of(stream, {1, 3}, std::vector<float>(3, 1)), x = cast(stream, ones, type);
    const Variable input = tape.leaf(x), y = tape.apply(PreciseLinear{parameter(unit, 0)}, input);
    const auto weights = values_of<float>(stream, unit.values());
    EXPECT_NEAR(values_of<float>(stream, y.value)[0], weights[0] + weights[1] + weights[2], 4e-2);
    tape.backward({{y, tensor_of(stream, {1, 4}, std::vector<float>(4, 1))}});
    const auto dx = values_of<float>(stream, cast(stream, tape.gradient(input), DType::f32));
    EXPECT_NEAR(dx[0], weights[0] + weights[3] + weights[6] + weights[9], 4e-2);
    EXPECT_EQ(final_gradients, 0);
  }
}

}  // namespace
}  // namespace lyceum
