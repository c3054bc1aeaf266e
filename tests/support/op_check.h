#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/elementwise.h"
#include "support/finite_difference.h"
#include "support/tested_stream.h"

namespace lyceum {

/// An operation, or a composition of several, to be checked in double precision. `run` computes results from inputs and
/// parameters. `input_scale`: standard deviation of the random inputs and parameters.
struct OpCase {
  std::string name;
  std::vector<Shape> inputs;
  std::function<void(ParameterUnit&)> add_parameters = [](ParameterUnit&) {};
  std::function<std::vector<Variable>(Tape&, const std::vector<Variable>&, const ParameterUnit&)> run;
  double input_scale = 1;
};
inline void PrintTo(const OpCase& op, std::ostream* out) { *out << op.name; }

/// Evaluates an OpCase and its gradient at a flat vector x, which contains all inputs and then all parameters.
class OpChecker {
 public:
  explicit OpChecker(const OpCase& op) : op_(op), stream_(tested_stream()), unit_("unit", ParameterUnit::Group::dense) {
    op_.add_parameters(unit_);
    unit_.allocate(stream_, DType::f64, true);
    for (const Shape& shape : op_.inputs) size_ += shape.size();
    for (const auto& parameter : unit_.parameters()) size_ += parameter->shape.size();
  }

  std::vector<double> point() const {
    const Philox random(7, op_.name);
    std::vector<double> x(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = op_.input_scale * random.normal(i);
    return x;
  }

  /// Returns the sum of all elements of all results, weighted with fixed random weights.
  double value(const std::vector<double>& x) {
    Tape tape(stream_, Tape::Mode::inference);
    double sum = 0;
    const std::vector<Variable> results = op_.run(tape, leaves(tape, x), unit_);
    for (std::size_t r = 0; r < results.size(); ++r) {
      const std::vector<double> w = weights(r, results[r].value.size());
      const std::vector<double> y = values_of<double>(stream_, results[r].value);
      for (std::size_t i = 0; i < w.size(); ++i) sum += w[i] * y[i];
    }
    return sum;
  }

  /// `empty`: the gradients of parameters are empty at first and their memory is NaN; otherwise they are zero.
  std::vector<double> gradient(const std::vector<double>& x, Tape::WeightGrad when = Tape::WeightGrad::now,
                               bool empty = false) {
    if (empty) {
      fill(unit_.gradients(), std::numeric_limits<double>::quiet_NaN());
      unit_.begin_gradients(stream_);
    } else {
      launch(stream_, Clear<double>{.y = unit_.gradients().span<double>()});
    }
    Tape tape(stream_);
    const std::vector<Variable> inputs = leaves(tape, x);
    std::vector<Tape::Seed> seeds;
    const std::vector<Variable> results = op_.run(tape, inputs, unit_);
    for (std::size_t r = 0; r < results.size(); ++r) {
      const std::vector<double> w = weights(r, results[r].value.size());
      seeds.push_back({results[r], tensor_of(stream_, results[r].value.shape(), w)});
    }
    tape.backward(seeds, when);
    if (when == Tape::WeightGrad::later) {
      fill(unit_.values(), std::numeric_limits<double>::quiet_NaN());  // ZeRO 3 may release them before their gradients
      tape.weight_gradients();
    }
    for (const auto& parameter : unit_.parameters()) parameter->clear_empty_gradient(stream_);
    return collect(tape, inputs);
  }

 private:
  std::vector<Variable> leaves(Tape& tape, const std::vector<double>& x) {
    auto at = x.begin();
    std::vector<Variable> inputs;
    for (const Shape& shape : op_.inputs) {
      inputs.push_back(tape.leaf(tensor_of(stream_, shape, std::vector<double>(at, at + shape.size()))));
      at += shape.size();
    }
    for (const auto& parameter : unit_.parameters()) {
      const std::span<const double> values(&*at, static_cast<std::size_t>(parameter->shape.size()));
      copy_to_device(stream_, parameter->value.span<double>(), values);
      at += parameter->shape.size();
    }
    return inputs;
  }

  void fill(const Tensor& all, double value) {
    copy_to_device<double>(stream_, all.span<double>(),
                           std::vector<double>(static_cast<std::size_t>(all.size()), value));
  }

  std::vector<double> collect(const Tape& tape, const std::vector<Variable>& inputs) const {
    std::vector<double> all;
    for (const Variable& input : inputs) {
      const Tensor dx = tape.gradient(input);
      std::vector<double> values(static_cast<std::size_t>(input.value.size()), 0.0);
      if (dx.defined()) values = values_of<double>(stream_, dx);
      all.insert(all.end(), values.begin(), values.end());
    }
    for (const auto& parameter : unit_.parameters()) {
      const std::vector<double> values = values_of<double>(stream_, parameter->gradient);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::vector<double> weights(std::size_t result, std::int64_t count) const {
    const Philox random(11, "weights" + std::to_string(result));
    std::vector<double> w(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = random.normal(i);
    return w;
  }

  OpCase op_;
  Stream stream_;
  ParameterUnit unit_;
  std::int64_t size_ = 0;
};

/// Returns the parameter of a unit with this index.
inline Parameter* parameter(const ParameterUnit& unit, std::size_t p) { return unit.parameters()[p].get(); }

inline Tensor i32_tensor(const Stream& stream, const Shape& shape, const std::vector<std::int32_t>& values) {
  return tensor_of(stream, shape, values);
}

/// Runs the checks that every operation must pass: gradients against finite differences, delayed weight gradients that
/// do not read weights, the same into empty gradients, and bit-identical repetition.
inline void check_op(const OpCase& op) {
  OpChecker checker(op);
  const std::vector<double> x = checker.point();
  const std::vector<double> gradient = checker.gradient(x);
  expect_gradient([&](const std::vector<double>& at) { return checker.value(at); }, x, gradient, 1e-6);
  EXPECT_EQ(gradient, checker.gradient(x, Tape::WeightGrad::later)) << "delayed weight gradients differ";
  EXPECT_EQ(gradient, checker.gradient(x)) << "a second run differs";
  EXPECT_EQ(gradient, checker.gradient(x, Tape::WeightGrad::now, true)) << "gradients that were empty differ";
}

}  // namespace lyceum
