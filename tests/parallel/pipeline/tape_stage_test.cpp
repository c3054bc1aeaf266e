#include "parallel/pipeline/tape_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/linear.h"
#include "core/allocator.h"

namespace lyceum {
namespace {

class TapeStageTest : public testing::Test {
 protected:
  TapeStageTest() {
    unit.add(whole_parameter("weight", {1, 1}, {}, true));
    unit.allocate(stream, DType::f64, true);
    *unit.values().data<double>() = 3;
  }
  Tensor number(double value) const {
    const Tensor tensor = Tensor::empty(stream, DType::f64, {1, 1});
    *tensor.data<double>() = value;
    return tensor;
  }
  /// Returns a stage y = 3 x with a loss whose derivative by y is `slope`.
  TapeStage stage_with_loss(double slope) {
    return {stream, [this, slope](Tape& tape, int, const Variable& x) {
              const Variable y = tape.apply(Linear{unit.parameters()[0].get()}, x);
              return TapeStage::Results{.y = y, .seeds = {{y, number(slope)}}};
            }};
  }
  double gradient() const { return *unit.gradients().data<double>(); }

  const Stream stream = CpuStream(1);
  ParameterUnit unit{"unit", ParameterUnit::Group::dense};
};

TEST_F(TapeStageTest, AddsItsOwnLossesToTheGradientThatComes) {
  TapeStage stage = stage_with_loss(10);
  EXPECT_EQ(*stage.forward(0, number(2)).data<double>(), 6);
  EXPECT_EQ(*stage.backward(0, number(1)).data<double>(), 33);  // 3 · (10 + 1)
  EXPECT_EQ(gradient(), 22);                                    // 2 · (10 + 1)
}

TEST_F(TapeStageTest, TheLastStageHasNoGradientThatComes) {
  TapeStage stage = stage_with_loss(10);
  stage.forward(0, number(2));
  EXPECT_EQ(*stage.backward(0, {}).data<double>(), 30);
  EXPECT_EQ(gradient(), 20);
}

TEST_F(TapeStageTest, WeightGradientsMayComeLater) {
  TapeStage stage = stage_with_loss(0);
  for (int m = 0; m < 3; ++m) stage.forward(m, number(m + 1));
  for (int m = 0; m < 3; ++m) EXPECT_EQ(*stage.backward_input(m, number(1)).data<double>(), 3);
  EXPECT_EQ(gradient(), 0);
  stage.backward_weight(0);
  EXPECT_EQ(gradient(), 1);
  stage.backward_weight(1);
  stage.backward_weight(2);
  EXPECT_EQ(gradient(), 6);
}

TEST_F(TapeStageTest, KeepsNothingOfWhatIsDone) {
  const auto held = [this] { return memory_of(stream).use().total; };
  const auto before = held();
  TapeStage stage = stage_with_loss(1);
  for (int m = 0; m < 2; ++m) stage.forward(m, number(1));
  EXPECT_GT(held(), before);
  stage.backward(0, number(1));
  stage.backward_input(1, number(1));
  stage.backward_weight(1);
  EXPECT_EQ(held(), before);
}

TEST_F(TapeStageTest, InferenceKeepsNothing) {
  TapeStage stage(
      stream,
      [this](Tape& tape, int, const Variable& x) {
        return TapeStage::Results{.y = tape.apply(Linear{unit.parameters()[0].get()}, x)};
      },
      Tape::Mode::inference);
  const auto before = memory_of(stream).use().total;
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(*stage.forward(0, number(2)).data<double>(), 6);
  EXPECT_EQ(memory_of(stream).use().total, before);
  EXPECT_THROW(stage.backward(0, number(1)), Error);
}

TEST_F(TapeStageTest, WrongOrdersAreNamed) {
  TapeStage stage = stage_with_loss(1);
  EXPECT_THROW(stage.backward(0, {}), Error);
  EXPECT_THROW(stage.backward_weight(0), Error);
  stage.forward(0, number(1));
  EXPECT_THROW(stage.forward(0, number(1)), Error);
}

}  // namespace
}  // namespace lyceum
