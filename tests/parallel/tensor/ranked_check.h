#pragma once

#include <gtest/gtest.h>

#include <numeric>

#include "core/random.h"
#include "support/grid.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {

/// A collective operation, checked as one function of all ranks' inputs (or of one input that is the same on all
/// ranks). Its value is the weighted sum of all ranks' outputs (or of one output that is the same on all ranks).
struct RankedCase {
  std::string name;
  Shape input;  // input of this rank
  bool same_input, same_output;
  std::function<Variable(Tape&, const Variable&)> run;
};

class RankedChecker {
 public:
  RankedChecker(const ProcessGroup& group, const RankedCase& op) : group_(group), op_(op), stream_(CpuStream(1)) {
    const std::int64_t own = op.input.size();
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.size()));
    group.all_gather(std::span(&own, 1), sizes);
    first_ = op.same_input ? 0 : std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
    size_ = op.same_input ? own : std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  }

  void check() {
    const Philox random(7, op_.name);
    std::vector<double> x(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
    std::vector<double> gradient(x.size(), 0.0);
    Tape tape(stream_);
    const Variable input = tape.leaf(input_of(x));
    const Variable output = op_.run(tape, input);
    tape.backward({{output, weights(output.value)}});
    const Tensor dx = tape.gradient(input);
    ASSERT_EQ(dx.shape(), op_.input);
    std::copy_n(dx.data<double>(), dx.size(), gradient.begin() + first_);
    if (op_.same_input) {
      std::vector<double> most = gradient;
      group_.all_reduce(std::span(most), Reduction::max);
      EXPECT_EQ(gradient, most) << "ranks differ";
    } else {
      group_.all_reduce(std::span(gradient));
    }
    expect_gradient([&](const std::vector<double>& at) { return value(at); }, x, gradient, 1e-7);
  }

 private:
  Tensor input_of(const std::vector<double>& x) const {
    const Tensor input = Tensor::empty(stream_, DType::f64, op_.input);
    std::copy_n(x.begin() + first_, input.size(), input.data<double>());
    return input;
  }

  Tensor weights(const Tensor& output) const {
    const Philox random(11, "weights" + std::to_string(op_.same_output ? 0 : group_.rank()));
    const Tensor w = Tensor::empty(stream_, DType::f64, output.shape());
    for (std::int64_t i = 0; i < w.size(); ++i) w.data<double>()[i] = random.normal(static_cast<std::uint64_t>(i));
    return w;
  }

  double value(const std::vector<double>& x) const {
    Tape tape(stream_, Tape::Mode::inference);
    const Tensor output = op_.run(tape, Variable{input_of(x)}).value;
    const Tensor w = weights(output);
    std::array<double, 1> sum{
        std::inner_product(w.data<double>(), w.data<double>() + w.size(), output.data<double>(), 0.0)};
    if (!op_.same_output) group_.all_reduce(std::span(sum));
    return sum[0];
  }

  const ProcessGroup& group_;
  RankedCase op_;
  Stream stream_;
  std::int64_t first_, size_;  // offset of this rank's input among all inputs; number of all inputs
};

}  // namespace lyceum
