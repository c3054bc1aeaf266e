#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/grouped_activation.h"
#include "kernels/grouped_bank.h"

namespace lyceum::test {

inline constexpr Activation activations[] = {Activation::swiglu, Activation::gelu, Activation::clamped_swiglu};

/// Returns the numbers of inputs of activations with these numbers of results.
inline Widths inputs_for(Activation kind, Widths widths) {
  for (std::int64_t& width : widths) width *= inputs_of(kind);
  return widths;
}

/// Returns the activation with constants that clamp some inputs of tests.
inline ActivationFunction tested_function(Activation kind) { return {kind, 1.25, 0.75}; }

/// A Bank whose product is fused with an activation. In a forward problem, `bank` has x and the weights, and the
/// results are `hidden` (the product) and `activated`. In a backward problem, x of `bank` is dy, `hidden` is an input,
/// and the results are `d_hidden` and `activated`. Results and padding rows of inputs are NaN at first.
template <class T>
struct ActivatedBank {
  Activation kind;
  Bank<T> bank;
  SegmentLayout wide, narrow;
  std::vector<T> hidden, d_hidden, activated;
  std::vector<std::int64_t> gate_of_row;
  std::vector<Accumulator<T>> gate, d_gate;
  std::vector<std::vector<T>> biases;   // of all experts, or none
  std::vector<const T*> bias_pointers;  // into `biases`

  /// Makes a problem with the rows and widths of `c`: c.in is the width of x (or dy), c.out that of the activation's
  /// results.
  template <class Like>
  static ActivatedBank made(Activation kind, const Case& c, bool forward) {
    const Widths out = forward ? inputs_for(kind, c.out) : c.out;
    ActivatedBank made;
    made.kind = kind;
    made.bank = Bank<T>::template made<Like>(c.rows, c.in, out, forward, false, c.gap);
    const SegmentTable& table = made.bank.table;
    made.wide = SegmentLayout(CpuStream(1), table, inputs_for(kind, c.out));
    made.narrow = SegmentLayout(CpuStream(1), table, c.out);
    const auto size_of = [](const SegmentLayout& layout) { return static_cast<std::size_t>(layout.size()); };
    const T nan(std::numeric_limits<float>::quiet_NaN());
    made.hidden.assign(size_of(made.wide), nan);
    made.d_hidden.assign(size_of(made.wide), nan);
    made.activated.assign(size_of(made.narrow), nan);
    for (std::int64_t e = 0; e < std::ssize(c.rows) && !forward; ++e) {
      const Matrix<T> rows = made.hidden_of(e).rows_from(0, c.rows[static_cast<std::size_t>(e)]);
      Bank<T>::template fill<Like>(rows, "hidden", e);
    }
    poison(made.bank, made.bank.x_layout, made.bank.x);
    return made;
  }

  GemmThenActivation<T> forward() {
    const GroupedGemm<T> product = bank.product(true);
    return {.function = tested_function(kind),
            .segments = product.segments,
            .x = product.x,
            .weights = product.weights,
            .hidden = wide.over(hidden.data()),
            .activated = narrow.over(activated.data()),
            .picked = product.picked,
            .bias = bias_list()};
  }
  GemmThenActivationBackward<T> backward() {
    const GroupedGemm<T> product = bank.product(false);
    return {.function = tested_function(kind),
            .segments = product.segments,
            .dy = product.x,
            .weights = product.weights,
            .hidden = wide.over(std::as_const(hidden).data()),
            .d_hidden = wide.over(d_hidden.data()),
            .activated = narrow.over(activated.data()),
            .picked = product.picked,
            .gates = {.index = gate_of_row, .gate = gate, .d_gate = d_gate},
            .bias = bias_list()};
  }

  /// Adds a bias for each expert, [inputs · width], at an address of 16 bytes.
  void add_biases() {
    const Philox random(13, "biases");
    std::int64_t next = 0;
    for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
      const std::int64_t width = hidden_of(e).cols;
      auto& vector = biases.emplace_back(static_cast<std::size_t>(width + 16));
      for (T& value : vector) value = static_cast<T>(noise(random, next++));
    }
    for (const std::vector<T>& vector : biases) {
      const auto address = reinterpret_cast<std::uintptr_t>(vector.data());
      bias_pointers.push_back(vector.data() + (16 - address % 16) % 16 / sizeof(T));
    }
  }
  SegmentVectors<const T> bias_list() const { return bias_pointers; }
  /// Returns the row of activation inputs, [inputs · width], with the bias of expert `e` if there is one.
  std::vector<double> inputs_of_row(std::int64_t e, std::int64_t row) {
    const Matrix<T> of_expert = hidden_of(e);
    std::vector<double> inputs;
    for (std::int64_t c = 0; c < of_expert.cols; ++c) {
      const double bias = bias_pointers.empty() ? 0 : as_double(bias_pointers[static_cast<std::size_t>(e)][c]);
      inputs.push_back(as_double(of_expert.row(row)[c]) + bias);
    }
    return inputs;
  }

  /// Makes the rows of dy copies of tokens (Bank::pick) and adds gates. Some rows have no gate, and some gates no row.
  /// The gradients of gates are NaN at first.
  template <class Like>
  void pick_gated(bool in_place, std::int64_t gap) {
    bank.template pick<Like>(in_place, gap);
    const Segments segments = bank.table.view();
    constexpr std::int64_t unused = 3;
    const Philox random(11, "gates");
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const auto i = static_cast<std::size_t>(e);
      for (std::int64_t r = 0; r < segments.begin[i + 1] - segments.begin[i]; ++r) {
        const bool none = r >= segments.rows[i] || r % 13 == 7;
        gate_of_row.push_back(none ? -1 - r : segments.total() + unused - 1 - std::ssize(gate_of_row));
      }
    }
    for (std::int64_t g = 0; g < segments.total() + unused; ++g) gate.push_back(noise(random, g));
    d_gate.assign(gate.size(), std::numeric_limits<Accumulator<T>>::quiet_NaN());
  }
  /// Returns the gate of a row, counted over all segments: 1 if the problem has no gates, 0 if the row has none.
  double gate_at(std::int64_t row) const {
    if (gate.empty()) return 1;
    const std::int64_t index = gate_of_row[static_cast<std::size_t>(row)];
    return index < 0 ? 0 : gate[static_cast<std::size_t>(index)];
  }

  Matrix<T> hidden_of(std::int64_t e) { return wide.over(hidden.data()).segment(bank.table.view(), e); }
  Matrix<T> d_hidden_of(std::int64_t e) { return wide.over(d_hidden.data()).segment(bank.table.view(), e); }
  Matrix<T> activated_of(std::int64_t e) { return narrow.over(activated.data()).segment(bank.table.view(), e); }
};

/// Result `column` of the activation of a row with `width` results, and the gradients of its inputs.
struct ExactActivation {
  double value, d_first, d_second;  // d_second: gradient of `up` of SwiGLU; GELU has one input

  ExactActivation(Activation kind, const std::vector<double>& row, std::int64_t width, std::int64_t column, double dy) {
    const double x = row[static_cast<std::size_t>(column)];
    if (kind == Activation::gelu) {
      const double below = (1 + std::erf(x / std::sqrt(2.0))) / 2, density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
      value = x * below;
      d_first = dy * (below + x * density);
      d_second = 0;
      return;
    }
    const double up = row[static_cast<std::size_t>(column + width)];
    if (kind == Activation::clamped_swiglu) {
      const ActivationFunction function = tested_function(kind);
      const double alpha = function.alpha, limit = function.limit;
      const double gate = std::fmin(x, limit), linear = std::fmax(-limit, std::fmin(up, limit)) + 1;
      const double s = 1 / (1 + std::exp(-alpha * gate));
      value = gate * s * linear;
      d_first = x > limit ? 0 : dy * linear * (s + gate * alpha * s * (1 - s));
      d_second = std::abs(up) > limit ? 0 : dy * gate * s;
      return;
    }
    const double sigmoid = 1 / (1 + std::exp(-x));
    value = x * sigmoid * up;
    d_first = dy * up * sigmoid * (1 + x * (1 - sigmoid));
    d_second = dy * x * sigmoid;
  }
};

/// Succeeds if `value` differs from `exact` by no more than the errors of `roundings` roundings to T and of sums.
template <class T>
testing::AssertionResult nearly(T value, double exact, int roundings) {
  double rounding = 1e-12;
  if (std::is_same_v<T, float>) rounding = 1e-5;
  if (std::is_same_v<T, bfloat16>) rounding = 0x1p-8;
  const double relative = roundings * rounding;
  const double absolute = std::is_same_v<T, double> ? 1e-9 : 3e-3;
  if (std::abs(as_double(value) - exact) <= absolute + relative * std::abs(exact)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << as_double(value) << " instead of " << exact;
}

/// Compares `activated` with gate · activation(hidden), computed in double. Padding must be 0.
template <class T>
void expect_right_activated(ActivatedBank<T>& bank) {
  const Segments segments = bank.bank.table.view();
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const Matrix<T> activated = bank.activated_of(e);
    for (std::int64_t r = 0; r < activated.rows; ++r) {
      const bool filled = r < segments.rows[static_cast<std::size_t>(e)];
      const std::vector<double> inputs = bank.inputs_of_row(e, r);
      const double gate = bank.gate_at(segments.begin[static_cast<std::size_t>(e)] + r);
      for (std::int64_t c = 0; c < activated.cols; ++c) {
        const double exact = filled ? gate * ExactActivation(bank.kind, inputs, activated.cols, c, 0).value : 0;
        ASSERT_TRUE(nearly(activated.row(r)[c], exact, 1)) << "expert " << e << ", row " << r << ", column " << c;
      }
    }
  }
}

/// Computes the forward pass with run(bank), with biases if `biased`, and compares the products and the activation with
/// the formulas in double.
template <class T, class Run>
void expect_right_forward(Activation kind, const Case& c, bool picked, Run&& run, bool biased = false) {
  auto bank = ActivatedBank<T>::template made<T>(kind, c, true);
  if (biased) bank.add_biases();
  auto exact = Bank<double>::template made<T>(c.rows, c.in, inputs_for(kind, c.out), true, false, c.gap);
  if (picked) {
    bank.bank.template pick<T>(true, c.gap);
    exact.template pick<T>(false, c.gap);
  }
  run(bank);
  lyceum::run(CpuStream(2), exact.product(true));
  for (std::int64_t e = 0; e < exact.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e);
    expect_rounded<T>(bank.hidden_of(e), exact.y_of(e));  // includes padding, which must be 0
  }
  expect_right_activated(bank);
}

/// Compares d_gate with the formula, given the exact gradient of the activation's results. It must be 0 for gates
/// without a row.
template <class T>
void expect_right_gates(ActivatedBank<T>& bank, Bank<double>& exact) {
  const Segments segments = bank.bank.table.view();
  std::vector<bool> checked(bank.gate.size());
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const Matrix<double> d_activated = exact.y_of(e);
    const auto i = static_cast<std::size_t>(e);
    for (std::int64_t r = 0; r < segments.rows[i]; ++r) {
      const std::vector<double> inputs = bank.inputs_of_row(e, r);
      const std::int64_t index = bank.gate_of_row[static_cast<std::size_t>(segments.begin[i] + r)];
      if (index < 0) continue;
      double sum = 0, error = 0;  // error: from rounding the gradient of the activation's results, and from the sum
      for (std::int64_t c = 0; c < d_activated.cols; ++c) {
        const double given = d_activated.row(r)[c];
        const double value = ExactActivation(bank.kind, inputs, d_activated.cols, c, 0).value;
        sum += given * value;
        error += std::abs(value) * (std::is_same_v<T, double> ? 1e-10 : 5e-4 + std::abs(given) * 1e-5);
        error += std::is_same_v<T, bfloat16> ? 0x1p-8 * std::abs(given * value) : 0;
      }
      const double actual = bank.d_gate[static_cast<std::size_t>(index)];
      ASSERT_TRUE(std::abs(actual - sum) <= error)
          << actual << " instead of " << sum << ", expert " << e << ", row " << r;
      checked[static_cast<std::size_t>(index)] = true;
    }
  }
  for (std::size_t g = 0; g < checked.size(); ++g) ASSERT_TRUE(checked[g] || bank.d_gate[g] == 0) << "gate " << g;
}

/// Computes the backward pass with run(bank) and compares all results with the formulas in double. `picked`: rows of dy
/// are picked and have gates.
template <class T, class Run>
void expect_right_backward(Activation kind, const Case& c, bool picked, Run&& run, bool biased = false) {
  auto bank = ActivatedBank<T>::template made<T>(kind, c, false);
  if (biased) bank.add_biases();
  auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, false, false, c.gap);
  if (picked) {
    bank.template pick_gated<T>(true, c.gap);
    exact.template pick<T>(false, c.gap);
  }
  run(bank);
  lyceum::run(CpuStream(2), exact.product(false));
  const Segments segments = exact.table.view();
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const Matrix<T> d_hidden = bank.d_hidden_of(e);
    const Matrix<double> d_activated = exact.y_of(e);
    for (std::int64_t r = 0; r < d_hidden.rows; ++r) {
      const std::vector<double> inputs = bank.inputs_of_row(e, r);
      const double gate = bank.gate_at(segments.begin[static_cast<std::size_t>(e)] + r);
      for (std::int64_t col = 0; col < d_activated.cols; ++col) {
        const bool filled = r < segments.rows[static_cast<std::size_t>(e)];
        const ExactActivation right(kind, inputs, d_activated.cols, col, gate * d_activated.row(r)[col]);
        ASSERT_TRUE(nearly(d_hidden.row(r)[col], filled ? right.d_first : 0.0, 2))
            << "expert " << e << ", row " << r << ", column " << col;
        if (kind == Activation::gelu) continue;
        ASSERT_TRUE(nearly(d_hidden.row(r)[col + d_activated.cols], filled ? right.d_second : 0.0, 2))
            << "expert " << e << ", row " << r << ", column " << col;
      }
    }
  }
  expect_right_activated(bank);
  if (picked) expect_right_gates(bank, exact);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Expects that the fused kernel gives the same bits as the two kernels in succession, which store the intermediate
/// result. Gradients of gates are not compared, because the fused kernel adds them up in another order.
template <class T, class Run>
void expect_bits_of_two_kernels(Activation kind, const Case& c, bool picked, Run&& run) {
  auto one = ActivatedBank<T>::template made<T>(kind, c, true), two = ActivatedBank<T>::template made<T>(kind, c, true);
  if (picked) one.bank.template pick<T>(true, c.gap), two.bank.template pick<T>(true, c.gap);
  run(one.forward());
  run(two.forward().product());
  run(two.forward().activation());
  EXPECT_TRUE(same_bits(one.hidden, two.hidden));
  EXPECT_TRUE(same_bits(one.activated, two.activated));

  auto back = ActivatedBank<T>::template made<T>(kind, c, false);
  auto in_turns = ActivatedBank<T>::template made<T>(kind, c, false);
  if (picked) back.template pick_gated<T>(true, c.gap), in_turns.template pick_gated<T>(true, c.gap);
  run(back.backward());
  run(in_turns.bank.product(false));
  ActivationBackward<T> activation = in_turns.backward().activation();
  activation.dy = in_turns.narrow.over(std::as_const(in_turns.bank.y).data());
  run(activation);
  EXPECT_TRUE(same_bits(back.d_hidden, in_turns.d_hidden));
  EXPECT_TRUE(same_bits(back.activated, in_turns.activated));
}

}  // namespace lyceum::test
