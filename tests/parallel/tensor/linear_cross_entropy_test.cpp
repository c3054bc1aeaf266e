#include "parallel/tensor/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/linear.h"
#include "core/allocator.h"
#include "support/grid.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

using Inputs = std::vector<Variable>;

/// Number of tokens, hidden width, and number of words.
constexpr std::int64_t tokens = 5, hidden = 3, vocab = 7;
const std::vector<std::int32_t> words_to_come{0, 6, 3, 3, 5};

class LinearCrossEntropyTest : public testing::Test {
 protected:
  LinearCrossEntropy operation(const Stream& stream, Parameter* weight, std::int64_t chunk) const {
    return {.weight = weight,
            .targets = i32_tensor(stream, {tokens}, words_to_come),
            .chunk = chunk,
            .group = &alone,
            .words = {0, vocab},
            .vocab = vocab};
  }
  /// The operation with the first two results if `z`.
  OpCase in_chunks(std::int64_t chunk, bool z = false) const {
    return {.name = "LinearCrossEntropy",
            .inputs = {{tokens, hidden}},
            .add_parameters =
                [](ParameterUnit& unit) {
                  unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
                },
            .run = [=, this](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
              LinearCrossEntropy op = operation(tape.stream(), parameter(unit, 0), chunk);
              op.z = z;
              const auto [loss, squares, divergence] = tape.apply(op, x[0]);
              return z ? Inputs{loss, squares} : Inputs{loss};
            }};
  }
  ProcessGroup alone = ProcessGroup::self();
};

TEST_F(LinearCrossEntropyTest, GradientsAreThoseOfFiniteDifferences) {
  for (const std::int64_t chunk : {0, 2, 9}) {
    SCOPED_TRACE("chunks of " + std::to_string(chunk));
    check_op(in_chunks(chunk));
    check_op(in_chunks(chunk, true));
  }
}

/// Tokens without a target have neither loss.
TEST_F(LinearCrossEntropyTest, TheZLossIsTheSumOfSquaresOverTargets) {
  const Stream& stream = tested_stream();
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& weight = unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
  unit.allocate(stream, DType::f64, true);
  unit.initialize(stream, 1);
  // Inputs are zero, so the log-sum-exp of each token is log(vocab).
  for (const std::int64_t chunk : {0, 2}) {
    LinearCrossEntropy op = operation(stream, &weight, chunk);
    op.targets = i32_tensor(stream, {tokens}, {0, -1, 3, -1, 5});
    op.z = true;
    Tape tape(stream);
    const auto [loss, squares, divergence] =
        tape.apply(op, tape.leaf(Tensor::zeros(stream, DType::f64, {tokens, hidden})));
    EXPECT_NEAR(values_of<double>(stream, squares.value)[0], 3 * std::pow(std::log(7.0), 2), 1e-12);
    op.z = false;
    EXPECT_FALSE(tape.apply(op, tape.leaf(Tensor::zeros(stream, DType::f64, {tokens, hidden})))[1].value.defined());
  }
}

/// Three tokens in two copies of two samples, of which the third one of each copy of the second sample has no target.
constexpr std::int64_t pair_len = 3, pair_tokens = 4 * pair_len;
const std::vector<std::int32_t> paired_words{0, 6, 3, 0, 6, 3, 2, 5, -1, 2, 5, -1};

OpCase with_copies(const ProcessGroup& alone, std::vector<std::size_t> results) {
  return {.name = "LinearCrossEntropy",
          .inputs = {{pair_tokens, hidden}},
          .add_parameters =
              [](ParameterUnit& unit) {
                unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
              },
          .run = [&alone, results](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            const LinearCrossEntropy op{.weight = parameter(unit, 0),
                                        .targets = i32_tensor(tape.stream(), {pair_tokens}, paired_words),
                                        .chunk = 0,
                                        .group = &alone,
                                        .words = {0, vocab},
                                        .vocab = vocab,
                                        .z = true,
                                        .pair_len = pair_len};
            const std::array<Variable, 3> all = tape.apply(op, x[0]);
            Inputs wanted;
            for (const std::size_t result : results) wanted.push_back(all[result]);
            return wanted;
          }};
}

TEST_F(LinearCrossEntropyTest, GradientsOfCopiesAreThoseOfFiniteDifferences) {
  check_op(with_copies(alone, {0, 1, 2}));
  check_op(with_copies(alone, {2}));
  check_op(with_copies(alone, {0, 2}));
  check_op(with_copies(alone, {0}));
}

TEST_F(LinearCrossEntropyTest, CopiesNeedAllLogits) {
  const Stream& stream = tested_stream();
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& weight = unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
  unit.allocate(stream, DType::f64, true);
  LinearCrossEntropy op = operation(stream, &weight, 2);
  op.targets = i32_tensor(stream, {pair_tokens}, paired_words);
  op.pair_len = pair_len;
  Tape tape(stream);
  EXPECT_THROW(tape.apply(op, tape.leaf(Tensor::zeros(stream, DType::f64, {pair_tokens, hidden}))), Error);
  op.chunk = 0;
  EXPECT_NO_THROW(tape.apply(op, tape.leaf(Tensor::zeros(stream, DType::f64, {pair_tokens, hidden}))));
  op.pair_len = 5;
  EXPECT_THROW(tape.apply(op, tape.leaf(Tensor::zeros(stream, DType::f64, {pair_tokens, hidden}))), Error);
}

TEST_F(LinearCrossEntropyTest, IsTheLossOfTheLogits) {
  OpChecker checker(in_chunks(0));
  const std::vector<double> x = checker.point();
  const auto number = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  long double expected = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<long double> logits(vocab, 0);
    long double sum = 0;
    for (std::int64_t v = 0; v < vocab; ++v) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        logits[number(v)] += static_cast<long double>(x[number(t * hidden + c)]) * x[number((tokens + v) * hidden + c)];
      }
      sum += std::exp(logits[number(v)]);
    }
    expected += std::log(sum) - logits[number(words_to_come[number(t)])];
  }
  // OpChecker multiplies results by random weights. An operation that returns its input yields the weight.
  OpChecker one({.name = "one", .inputs = {{1}}, .run = [](Tape&, const Inputs& in, const ParameterUnit&) -> Inputs {
                   return {in[0]};
                 }});
  const double weight = one.value({1.0});
  for (const std::int64_t chunk : {0, 1, 3, 7}) {
    EXPECT_NEAR(OpChecker(in_chunks(chunk)).value(x), weight * static_cast<double>(expected), 1e-12);
  }
}

/// The loss, dx and the weight gradient of one pass, with sizes for which the GEMM works in panels.
struct Pass {
  std::vector<double> loss, dx, dw;
};
template <class T>
Pass pass(std::int64_t chunk, Tape::WeightGrad when) {
  using A = Accumulator<T>;
  constexpr std::int64_t rows = 53, width = 40, words = 301;
  const Stream& stream = tested_stream();
  ProcessGroup alone = ProcessGroup::self();
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& weight = unit.add(whole_parameter("w", {words, width}, 0.3, true));
  unit.allocate(stream, dtype_of<T>, true);
  unit.initialize(stream, 1);
  const Philox random(3, "rows");
  std::vector<T> x(rows * width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(static_cast<float>(random.normal(i)));
  std::vector<std::int32_t> targets(rows);
  for (std::size_t t = 0; t < targets.size(); ++t)
    targets[t] = static_cast<std::int32_t>(random.below(words, 9000 + t));
  Tape tape(stream);
  const Variable input = tape.leaf(tensor_of(stream, {rows, width}, x));
  const Variable loss = tape.apply(LinearCrossEntropy{.weight = &weight,
                                                      .targets = i32_tensor(stream, {rows}, targets),
                                                      .chunk = chunk,
                                                      .group = &alone,
                                                      .words = {0, words},
                                                      .vocab = words},
                                   input)[0];
  tape.backward({tape.seed(loss, 1.0 / rows)}, when);
  tape.weight_gradients();
  const auto numbers = [&]<class U>(const Tensor& tensor, U) {
    std::vector<double> all;
    for (const U value : values_of<U>(stream, tensor)) all.push_back(to_double(value));
    return all;
  };
  return {numbers(loss.value, A{}), numbers(tape.gradient(input), T{}), numbers(weight.gradient, A{})};
}

void expect_near(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  double most = 0;
  for (const double value : expected) most = std::max(most, std::abs(value));
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(std::abs(values[i] - expected[i]) <= tolerance * most);
}

template <class T>
void expect_chunks_alike(double tolerance) {
  const Pass whole = pass<T>(0, Tape::WeightGrad::now);
  for (const std::int64_t chunk : {1, 7, 32, 52, 53, 4096}) {
    SCOPED_TRACE("chunks of " + std::to_string(chunk));
    const Pass now = pass<T>(chunk, Tape::WeightGrad::now), later = pass<T>(chunk, Tape::WeightGrad::later);
    expect_near(now.loss, whole.loss, std::min(tolerance, 1e-5));
    expect_near(now.dx, whole.dx, tolerance);
    expect_near(now.dw, whole.dw, tolerance);
    EXPECT_EQ(now.loss, later.loss);
    EXPECT_EQ(now.dx, later.dx);
    EXPECT_EQ(now.dw, later.dw);
    if (chunk < 53) continue;
    EXPECT_EQ(now.loss, whole.loss);
    EXPECT_EQ(now.dx, whole.dx);
    EXPECT_EQ(now.dw, whole.dw);
  }
}

TEST_F(LinearCrossEntropyTest, ChunksGiveWhatAllLogitsGive) {
  expect_chunks_alike<double>(1e-13);
  expect_chunks_alike<float>(3e-6);
  expect_chunks_alike<bfloat16>(1e-2);
}

/// Provides a unit's gradients when they are needed, as ZeRO does.
class LateGradients final : public UnitMemory {
 public:
  explicit LateGradients(const Stream& stream) : stream_(stream) {}
  void need_values(ParameterUnit&, Pass) override {}
  void need_gradients(ParameterUnit& unit) override {
    if (!unit.gradients().defined()) unit.set_gradients(Tensor::zeros(stream_, DType::f64, {unit.size()}));
  }

 private:
  const Stream& stream_;
};

TEST_F(LinearCrossEntropyTest, WeightGradientsOfChunksAreFinalWithBackward) {
  const Stream& stream = tested_stream();
  for (const bool recomputed : {false, true}) {
    for (const std::int64_t chunk : {0, 2}) {
      ParameterUnit unit("unit", ParameterUnit::Group::dense);
      Parameter& weight = unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
      unit.allocate(stream, DType::f64, true);
      unit.initialize(stream, 1);
      unit.set_gradients({});
      LateGradients memory(stream);
      unit.set_memory(&memory);
      int finals = 0;
      Tape tape(stream);
      tape.on_gradient_final([&](Parameter&) { ++finals; });
      const auto block = [&](Tape& inner, const Variable& in) -> Inputs {
        return {inner.apply(operation(stream, &weight, chunk), in)[0]};
      };
      const Variable x = tape.leaf(Tensor::zeros(stream, DType::f64, {tokens, hidden}));
      const Variable loss = recomputed ? tape.recompute(block, x)[0] : block(tape, x)[0];
      tape.backward({tape.seed(loss, 1)}, Tape::WeightGrad::later);
      EXPECT_EQ(finals, chunk > 0 ? 1 : 0);
      EXPECT_EQ(unit.gradients().defined(), chunk > 0);
      tape.weight_gradients();
      EXPECT_EQ(finals, 1);
      EXPECT_TRUE(unit.gradients().defined());
    }
  }
}

/// Gradients of weights are reported as final even if the loss has no seed.
TEST_F(LinearCrossEntropyTest, WithoutASeedWeightGradientsAreFinalToo) {
  const Stream& stream = tested_stream();
  for (const std::int64_t chunk : {0, 2}) {
    ParameterUnit unit("unit", ParameterUnit::Group::dense);
    Parameter& weight = unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
    unit.allocate(stream, DType::f64, true);
    unit.initialize(stream, 1);
    int finals = 0;
    Tape tape(stream);
    tape.on_gradient_final([&](Parameter&) { ++finals; });
    tape.apply(operation(stream, &weight, chunk), tape.leaf(Tensor::zeros(stream, DType::f64, {tokens, hidden})));
    tape.backward({});
    EXPECT_EQ(finals, 1);
    for (const double value : values_of<double>(stream, weight.gradient)) EXPECT_EQ(value, 0);
  }
}

TEST_F(LinearCrossEntropyTest, HoldsTheLogitsOfOneChunk) {
  constexpr std::int64_t rows = 1024, width = 8, words = 512, chunk = 64;
  const auto held = [&](std::int64_t of, bool recording) {
    const Stream stream = fresh_stream();
    ParameterUnit unit("unit", ParameterUnit::Group::dense);
    Parameter& weight = unit.add(whole_parameter("w", {words, width}, 0.3, true));
    unit.allocate(stream, DType::f32, true);
    unit.initialize(stream, 1);
    const auto activations = static_cast<std::size_t>(MemoryKind::activations);
    Tape tape(stream, recording ? Tape::Mode::record : Tape::Mode::inference);
    const Variable x = tape.leaf(Tensor::zeros(stream, DType::f32, {rows, width}));
    const std::vector<std::int32_t> targets(rows, 3);
    const Variable loss = tape.apply(LinearCrossEntropy{.weight = &weight,
                                                        .targets = i32_tensor(stream, {rows}, targets),
                                                        .chunk = of,
                                                        .group = &alone,
                                                        .words = {0, words},
                                                        .vocab = words},
                                     x)[0];
    const std::int64_t kept = memory_of(stream).use().in_use[activations];
    if (recording) tape.backward({tape.seed(loss, 1)});
    return std::pair(kept, memory_of(stream).use().peak[activations]);
  };
  constexpr std::int64_t logit = 4, rest = rows * (2 * width + 4) * logit;
  const auto [kept, peak] = held(chunk, true);
  const auto [all_kept, all_peak] = held(0, true);
  EXPECT_EQ(all_kept - kept, rows * words * logit);
  EXPECT_EQ(all_peak - peak, (rows - chunk) * words * logit);
  EXPECT_LE(peak, chunk * words * logit + rest);
  EXPECT_LE(held(chunk, false).second, chunk * words * logit + rest);
}

TEST_F(LinearCrossEntropyTest, RefusesWhatDoesNotFit) {
  const Stream& stream = tested_stream();
  ParameterUnit unit("unit", ParameterUnit::Group::dense);
  Parameter& weight = unit.add(whole_parameter("w", {vocab, hidden}, 1.0, true));
  unit.allocate(stream, DType::f64, true);
  Tape tape(stream);
  const auto apply = [&](const Shape& shape, Range words) {
    LinearCrossEntropy op = operation(stream, &weight, 2);
    op.words = words;
    tape.apply(op, tape.leaf(Tensor::zeros(stream, DType::f64, shape)));
  };
  EXPECT_THROW(apply({tokens - 1, hidden}, {0, vocab}), Error);
  EXPECT_THROW(apply({tokens, hidden + 1}, {0, vocab}), Error);
  EXPECT_THROW(apply({tokens, hidden}, {0, vocab - 1}), Error);
}

}  // namespace
}  // namespace lyceum
