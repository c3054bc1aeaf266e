#include "autograd/tape.h"

#include <gtest/gtest.h>

#include "autograd/expert_bank.h"
#include "autograd/linear.h"
#include "autograd/rms_norm.h"
#include "autograd/sum.h"
#include "core/allocator.h"
#include "kernels/elementwise.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

using Inputs = std::vector<Variable>;

/// Two layers with a residual connection and a shared weight, run directly or recomputed.
OpCase two_layers(bool recomputed) {
  return {.name = "TwoLayers",
          .inputs = {{4, 3}},
          .add_parameters =
              [](ParameterUnit& unit) {
                unit.add(whole_parameter("norm", {3}, {}, false));
                unit.add(whole_parameter("w", {3, 3}, 1.0, true));
              },
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            const auto layer = [&unit](Tape& inner, const Variable& in) -> Inputs {
              const Variable y =
                  inner.apply(Linear{parameter(unit, 1)}, inner.apply(RmsNorm{parameter(unit, 0), 1e-3}, in));
              return {inner.apply(Sum{}, in, y), y};
            };
            Inputs first = recomputed ? tape.recompute(layer, x[0]) : layer(tape, x[0]);
            Inputs second = recomputed ? tape.recompute(layer, first[0]) : layer(tape, first[0]);
            return {second[0], first[1]};
          }};
}

TEST(Tape, RecomputationGivesTheSameBits) {
  OpChecker direct(two_layers(false)), recomputed(two_layers(true));
  const std::vector<double> x = direct.point();
  EXPECT_EQ(direct.value(x), recomputed.value(x));
  EXPECT_EQ(direct.gradient(x), recomputed.gradient(x));
  EXPECT_EQ(direct.gradient(x), recomputed.gradient(x, Tape::WeightGrad::later));
  check_op(two_layers(true));
}

TEST(Tape, RecomputationKeepsOnlyTheInput) {
  const auto peak = [](bool recomputed) {
    const Stream stream = CpuStream(1);
    ParameterUnit unit("unit", ParameterUnit::Group::dense);
    unit.add(whole_parameter("w", {64, 64}, 0.1, true));
    unit.allocate(stream, DType::f32, true);
    unit.initialize(stream, 1);
    Tape tape(stream);
    Variable x = tape.leaf(Tensor::zeros(stream, DType::f32, {256, 64}));
    const auto block = [&unit](Tape& inner, const Variable& in) -> Inputs {
      Variable y = in;
      for (int i = 0; i < 8; ++i) y = inner.apply(Linear{parameter(unit, 0)}, y);
      return {y};
    };
    for (int layer = 0; layer < 4; ++layer) x = recomputed ? tape.recompute(block, x)[0] : block(tape, x)[0];
    return memory_of(stream).use().in_use[static_cast<std::size_t>(MemoryKind::activations)];
  };
  EXPECT_LT(peak(true) * 4, peak(false));
}

/// Two norms, each followed by a matrix. The results of the norms are released and computed again if the tape releases
/// results.
OpCase released_norms(bool released) {
  return {.name = "ReleasedNorms",
          .inputs = {{4, 3}},
          .add_parameters =
              [](ParameterUnit& unit) {
                unit.add(whole_parameter("norm", {3}, {}, false));
                unit.add(whole_parameter("w", {3, 3}, 1.0, true));
              },
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            tape.release_results(released);
            const RmsNorm norm{parameter(unit, 0), 1e-3};
            const Variable first = tape.apply(norm, x[0]), second = tape.apply(norm, first);
            const Variable y = tape.apply(Linear{parameter(unit, 1)}, second);
            const Variable z = tape.apply(Linear{parameter(unit, 1)}, first);
            tape.release(second, norm, first);
            tape.release(first, norm, x[0]);
            if (released && tape.recording()) {
              EXPECT_THROW(first.value.raw(), Error);
              EXPECT_THROW(second.value.raw(), Error);
            }
            return {y, tape.apply(Sum{}, y, z)};
          }};
}

TEST(Tape, ReleasedResultsAreMadeAgainWithTheSameBits) {
  OpChecker kept(released_norms(false)), released(released_norms(true));
  const std::vector<double> x = kept.point();
  EXPECT_EQ(kept.value(x), released.value(x));
  EXPECT_EQ(kept.gradient(x), released.gradient(x));
  EXPECT_EQ(kept.gradient(x), released.gradient(x, Tape::WeightGrad::later));
  check_op(released_norms(true));
}

TEST(Tape, TellsEachGradientsLastContribution) {
  const Stream stream = CpuStream(1);
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& twice = unit.add(whole_parameter("twice", {3, 3}, 1.0, true));
  Parameter& once = unit.add(whole_parameter("once", {3, 3}, 1.0, true));
  unit.allocate(stream, DType::f64, true);
  unit.initialize(stream, 1);
  for (const bool recomputed : {false, true}) {
    std::vector<std::string> order;
    std::vector<double> gradient_then;
    Tape tape(stream);
    tape.on_gradient_final([&](Parameter& parameter) {
      order.push_back(parameter.name);
      if (&parameter == &twice)
        gradient_then.assign(parameter.gradient.data<double>(), parameter.gradient.data<double>() + 9);
    });
    const auto block = [&](Tape& inner, const Variable& in) -> Inputs {
      return {inner.apply(Linear{&once}, inner.apply(Linear{&twice}, in))};
    };
    const Tensor input = Tensor::empty(stream, DType::f64, {2, 3});
    for (int i = 0; i < 6; ++i) input.data<double>()[i] = i + 1;
    const Variable x = tape.leaf(input);
    const Variable y = tape.apply(Linear{&twice}, recomputed ? tape.recompute(block, x)[0] : block(tape, x)[0]);
    const Tensor dy = Tensor::empty(stream, DType::f64, {2, 3});
    std::fill_n(dy.data<double>(), 6, 1.0);
    tape.backward({{y, dy}});
    EXPECT_EQ(order, (std::vector<std::string>{"once", "twice"}));
    EXPECT_EQ(gradient_then, std::vector<double>(twice.gradient.data<double>(), twice.gradient.data<double>() + 9));
  }
}

/// y = 2x with a parameter whose gradient is complete only when it is finished. Writes what the tape calls.
struct Unfinished {
  Parameter* weight;
  std::string* calls;
  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const {
    saved.x = x;
    const Tensor y = Tensor::zeros(stream, x.dtype(), x.shape());
    launch(stream, AddScaled<float, float>{.x = x.span<float>(), .factor = 2, .y = y.span<float>()});
    return y;
  }
  std::array<Tensor, 1> backward(const Stream& stream, Saved&, const Tensor& dy) const {
    *calls += "B" + weight->name;
    const Tensor dx = Tensor::zeros(stream, dy.dtype(), dy.shape());
    launch(stream, AddScaled<float, float>{.x = dy.span<float>(), .factor = 2, .y = dx.span<float>()});
    return {dx};
  }
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream&, Saved& saved, const Tensor& dy) const {
    *calls += "W" + weight->name;
    EXPECT_TRUE(saved.x.defined() && dy.defined());
  }
  void finish_weight_grad(const Stream&) const { *calls += "F" + weight->name; }
};

/// Returns the calls for operations 0 to 3 in this order, with finish_weight_grads_here() before each but operation 3.
/// A small letter f: the gradient is final.
std::string calls_of_unfinished(Tape::WeightGrad when, bool recomputed) {
  const Stream stream = CpuStream(1);
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  for (int i = 0; i < 4; ++i) unit.add(whole_parameter(std::to_string(i), {1}, 0.1, true));
  unit.allocate(stream, DType::f32, true);
  std::string calls;
  Tape tape(stream);
  tape.on_gradient_final([&](Parameter& parameter) { calls += "f" + parameter.name; });
  const Variable x = tape.leaf(Tensor::zeros(stream, DType::f32, {1}));
  const auto block = [&](Tape& inner, const Variable& in) -> Inputs {
    Variable y = in;
    for (int i = 0; i < 4; ++i) {
      if (i < 3) inner.finish_weight_grads_here();
      y = inner.apply(Unfinished{parameter(unit, i), &calls}, y);
    }
    return {y};
  };
  const Variable y = recomputed ? tape.recompute(block, x)[0] : block(tape, x)[0];
  tape.backward({tape.seed(y, 1)}, when);
  calls += '|';
  tape.weight_gradients();
  return calls;
}

TEST(Tape, FinishesWeightGradientsWhereItIsTold) {
  EXPECT_EQ(calls_of_unfinished(Tape::WeightGrad::now, false), "B3W3B2W2F3f3F2f2B1W1F1f1B0W0F0f0|");
  EXPECT_EQ(calls_of_unfinished(Tape::WeightGrad::later, false), "B3B2B1B0|W3W2F3f3F2f2W1F1f1W0F0f0");
  EXPECT_EQ(calls_of_unfinished(Tape::WeightGrad::now, true), "B3B2B1B0W3W2F3f3F2f2W1F1f1W0F0f0|");
  EXPECT_EQ(calls_of_unfinished(Tape::WeightGrad::later, true), "B3B2B1B0|W3W2F3f3F2f2W1F1f1W0F0f0");
}

TEST(Tape, RequiresThatWeightGradientsAreFinished) {
  const Stream stream = CpuStream(1);
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  unit.add(whole_parameter("0", {1}, 0.1, true));
  unit.allocate(stream, DType::f32, true);
  std::string calls;
  Tape tape(stream);
  const Variable x = tape.leaf(Tensor::zeros(stream, DType::f32, {1}));
  const Variable y = tape.apply(Unfinished{parameter(unit, 0), &calls}, x);
  EXPECT_THROW(tape.backward({tape.seed(y, 1)}), Error);
}

TEST(Tape, GradientsAddUpOverTapes) {
  const Stream stream = CpuStream(1);
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& w = unit.add(whole_parameter("w", {2, 2}, 1.0, true));
  unit.allocate(stream, DType::bf16, true);
  unit.initialize(stream, 1);
  EXPECT_EQ(w.gradient.dtype(), DType::f32);
  const Tensor ones = Tensor::empty(stream, DType::bf16, {1, 2});
  std::fill_n(ones.data<bfloat16>(), 2, bfloat16(1.0f));
  for (int turn = 0; turn < 3; ++turn) {
    Tape tape(stream);
    tape.backward({{tape.apply(Linear{&w}, tape.leaf(ones)), ones}});
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(w.gradient.data<float>()[i], 3.0f);
}

TEST(Tape, InferenceRecordsNothing) {
  const Stream stream = CpuStream(1);
  Tape tape(stream, Tape::Mode::inference);
  const Variable x = tape.leaf(Tensor::zeros(stream, DType::f32, {2, 2}));
  EXPECT_EQ(tape.apply(Sum{}, x, x).id, Variable::no_gradient);
  EXPECT_THROW(tape.backward({}), Error);
}

TEST(ParameterUnit, InitialValuesDependOnNameAndElementOnly) {
  const Stream stream = CpuStream(1);
  const auto values = [&](Parameter parameter) {
    ParameterUnit unit("unit", ParameterUnit::Group::dense);
    unit.add(whole_parameter("before", {5}, {}, false));
    Parameter& added = unit.add(std::move(parameter));
    unit.allocate(stream, DType::f32, false);
    unit.initialize(stream, 3);
    return std::vector<float>(added.value.data<float>(), added.value.data<float>() + added.value.size());
  };
  const std::vector<float> whole = values(whole_parameter("w", {4, 6}, 0.5, true));
  for (const Range columns : {Range{0, 3}, Range{3, 2}, Range{5, 1}}) {
    const std::vector<float> part = values(sharded_parameter("w", {4, 6}, 1, columns, 0.5));
    const auto first = static_cast<std::size_t>(columns.first), count = static_cast<std::size_t>(columns.count);
    ASSERT_EQ(part.size(), 4 * count);
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t col = 0; col < count; ++col) EXPECT_EQ(part[row * count + col], whole[row * 6 + first + col]);
    }
  }
  const std::vector<float> rows = values(sharded_parameter("w", {4, 6}, 0, {1, 2}, 0.5));
  ASSERT_EQ(rows.size(), 12U);
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole.begin() + 6));
  const std::vector<float> stacked = values(stacked_parameter("both", {{"a", 2, {0, 2}}, {"w", 4, {0, 4}}}, 6, 0.5));
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), stacked.begin() + 12));
  const std::vector<float> parts = values(stacked_parameter("both", {{"a", 2, {1, 1}}, {"w", 4, {2, 2}}}, 6, 0.5));
  ASSERT_EQ(parts.size(), 18U);
  EXPECT_TRUE(std::equal(parts.begin(), parts.begin() + 6, stacked.begin() + 6));
  EXPECT_TRUE(std::equal(parts.begin() + 6, parts.end(), whole.begin() + 12));
  EXPECT_EQ(values(whole_parameter("n", {3}, {}, false)), (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace lyceum
