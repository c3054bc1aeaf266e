#include "autograd/expert_bank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/random.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

constexpr std::int64_t tokens = 3, hidden = 3, top_k = 2;
/// The choices of three tokens among experts of 4, 2 and 5 columns. No token chooses the second expert, and one choice
/// is of no expert (−1).
const std::vector<std::int64_t> rows_of_experts{3, 0, 2}, row_of_pair{0, 33, 1, 32, 2, -1}, widths{4, 2, 5};

/// A bank of experts of these widths, with its own weights, which are equal in all instances.
struct Experts {
  ParameterUnit unit{"unit", ParameterUnit::Group::expert};
  std::shared_ptr<SegmentTable> table;
  ExpertBank bank;
  TokenRows copies;

  explicit Experts(const Stream& stream) : table(std::make_shared<SegmentTable>(stream, rows_of_experts)) {
    auto experts = std::make_shared<std::vector<ExpertBank::Expert>>();
    for (const std::int64_t width : widths) {
      const std::string name = std::to_string(width);
      experts->push_back({.in = &unit.add(whole_parameter("in" + name, {2 * width, hidden}, 1.0, true)),
                          .down = &unit.add(whole_parameter("down" + name, {hidden, width}, 1.0, true))});
    }
    unit.allocate(stream, DType::f64, true);
    unit.initialize(stream, 3);
    bank = {Activation::swiglu, experts, table};
    std::vector<std::int64_t> pair_of_row(static_cast<std::size_t>(table->total()), -1);
    for (std::size_t pair = 0; pair < row_of_pair.size(); ++pair) {
      if (row_of_pair[pair] < 0) continue;
      pair_of_row[static_cast<std::size_t>(row_of_pair[pair])] = static_cast<std::int64_t>(pair);
    }
    copies = {tensor_of(stream, {std::ssize(pair_of_row)}, pair_of_row),
              tensor_of(stream, {std::ssize(row_of_pair)}, row_of_pair), top_k};
  }
};

std::vector<double> random(const char* name, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Philox(7, name).normal(i);
  return values;
}

struct Numbers {
  std::vector<double> x = random("x", tokens*hidden), gates = random("gates", tokens*top_k),
                      dy = random("dy", tokens*hidden);
};
struct Results {
  std::vector<double> y, dx, d_gates, d_weights;
};

Results results_of(const Numbers& given) {
  const Stream& stream = tested_stream();
  const Experts experts(stream);
  Tape tape(stream);
  const Variable x = tape.leaf(tensor_of(stream, {tokens, hidden}, given.x));
  const Variable gates = tape.leaf(tensor_of(stream, {tokens, top_k}, given.gates));
  const Variable y = tape.apply(GatedBank{experts.bank, experts.copies}, x, gates);
  tape.backward({{y, tensor_of(stream, {tokens, hidden}, given.dy)}});
  return {values_of<double>(stream, y.value), values_of<double>(stream, tape.gradient(x)),
          values_of<double>(stream, tape.gradient(gates)), values_of<double>(stream, experts.unit.gradients())};
}

/// Calls f(pair, index of an element in its token, index of the same element in its row).
template <class F>
void each_row(const F& f) {
  for (std::size_t pair = 0; pair < row_of_pair.size(); ++pair) {
    for (std::int64_t c = 0; row_of_pair[pair] >= 0 && c < hidden; ++c) {
      const auto token = static_cast<std::int64_t>(pair) / top_k;
      f(pair, static_cast<std::size_t>(token * hidden + c), static_cast<std::size_t>(row_of_pair[pair] * hidden + c));
    }
  }
}

/// The reference: applies the bank to copies of the tokens, keeps its outputs and computes the weighted sums with
/// loops.
Results reference_results(const Numbers& given) {
  const Stream& stream = tested_stream();
  const Experts experts(stream);
  const Shape shape{experts.table->total(), hidden};
  std::vector<double> rows(static_cast<std::size_t>(shape.size())), d_rows(rows.size());
  each_row([&](std::size_t pair, std::size_t token, std::size_t row) {
    rows[row] = given.x[token];
    d_rows[row] = given.gates[pair] * given.dy[token];
  });
  Tape tape(stream);
  const Variable x = tape.leaf(tensor_of(stream, shape, rows)), y = tape.apply(experts.bank, x);
  tape.backward({{y, tensor_of(stream, shape, d_rows)}});
  const auto answers = values_of<double>(stream, y.value), d_copies = values_of<double>(stream, tape.gradient(x));
  Results results{std::vector<double>(given.x.size()), std::vector<double>(given.x.size()),
                  std::vector<double>(given.gates.size()), values_of<double>(stream, experts.unit.gradients())};
  each_row([&](std::size_t pair, std::size_t token, std::size_t row) {
    results.y[token] += given.gates[pair] * answers[row];
    results.dx[token] += d_copies[row];
    results.d_gates[pair] += given.dy[token] * answers[row];
  });
  return results;
}

TEST(GatedBank, AgreesWithAnswersThatAreKept) {
  const Results own = results_of({}), expected = reference_results({});
  const auto expect_equal = [](const std::vector<double>& actual, const std::vector<double>& wanted) {
    ASSERT_EQ(actual.size(), wanted.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], wanted[i], 1e-13) << i;
  };
  expect_equal(own.y, expected.y);
  expect_equal(own.dx, expected.dx);
  expect_equal(own.d_gates, expected.d_gates);
  expect_equal(own.d_weights, expected.d_weights);
  EXPECT_EQ(own.d_gates.back(), 0) << "of a choice without a row";
}

TEST(GatedBank, NanInTheGradientOfATokenStaysThere) {
  Numbers given;
  given.dy[2 * hidden] = std::numeric_limits<double>::quiet_NaN();
  const Results results = results_of(given);
  for (std::size_t i = 0; i < results.dx.size(); ++i) EXPECT_EQ(std::isnan(results.dx[i]), i / hidden == 2) << i;
  for (std::size_t pair = 0; pair < results.d_gates.size(); ++pair) {
    EXPECT_EQ(std::isnan(results.d_gates[pair]), pair == 2 * top_k) << pair;  // its other choice is −1
  }
}

/// Two passes over the same experts, as two micro-batches. Some experts have rows in the first pass only, others in the
/// second only, and one in neither. If gradients are empty before, in memory of NaN, the sums must be the same.
TEST(ExpertBank, WritesTheGradientsOfTheFirstPass) {
  const Stream& stream = tested_stream();
  const std::vector<std::vector<std::int64_t>> passes{{0, 3, 40, 0, 0}, {2, 0, 1, 0, 5}};
  const auto gradients = [&]<class T>(bool empty, T) {
    ParameterUnit unit("unit", ParameterUnit::Group::expert);
    auto experts = std::make_shared<std::vector<ExpertBank::Expert>>();
    for (std::size_t e = 0; e < passes[0].size(); ++e) {
      experts->push_back({.in = &unit.add(whole_parameter("in " + std::to_string(e), {16, 8}, 1.0, true)),
                          .down = &unit.add(whole_parameter("down " + std::to_string(e), {8, 8}, 1.0, true))});
    }
    using A = Accumulator<T>;
    unit.allocate(stream, dtype_of<T>, true);
    unit.initialize(stream, 3);
    if (empty) {
      const std::vector<A> stale(static_cast<std::size_t>(unit.size()), std::numeric_limits<A>::quiet_NaN());
      copy_to_device(stream, unit.gradients().span<A>(), std::span<const A>(stale));
      unit.begin_gradients(stream);
    }
    for (const auto& rows : passes) {
      const auto table = std::make_shared<SegmentTable>(stream, rows);
      std::vector<T> x(static_cast<std::size_t>(table->total() * 8)), dy(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<T>(static_cast<float>(Philox(5, "x").normal(i)));
        dy[i] = static_cast<T>(static_cast<float>(Philox(5, "dy").normal(i)));
      }
      for (std::size_t e = 0; e < rows.size(); ++e) {  // padding rows are zero
        const auto first = static_cast<std::size_t>(table->begin_on_host()[e] + rows[e]) * 8;
        const auto end = static_cast<std::size_t>(table->begin_on_host()[e + 1]) * 8;
        std::fill(x.begin() + static_cast<std::ptrdiff_t>(first), x.begin() + static_cast<std::ptrdiff_t>(end),
                  T(0.0F));
      }
      Tape tape(stream);
      const Shape shape{table->total(), 8};
      const Variable y =
          tape.apply(ExpertBank{Activation::swiglu, experts, table}, tape.leaf(tensor_of(stream, shape, x)));
      tape.backward({{y, tensor_of(stream, shape, dy)}});
      for (const auto& parameter : unit.parameters()) EXPECT_FALSE(parameter->gradient_empty);
    }
    return values_of<A>(stream, unit.gradients());
  };
  const auto check = [&](auto type) { EXPECT_EQ(gradients(true, type), gradients(false, type)); };
  check(0.0), check(0.0F), check(bfloat16(0.0F));
}

/// Trains only some experts. Experts that are not trained must still pass gradients to their inputs; the others must
/// get the same gradients as if all were trained.
TEST(ExpertBank, FreezesSomeExpertsWithoutEffectOnOthers) {
  const Stream& stream = tested_stream();
  const std::vector<std::int64_t> rows{3, 2, 0, 4, 1};
  const auto run = [&](const std::vector<bool>& frozen) {
    ParameterUnit trained("trained", ParameterUnit::Group::expert);
    ParameterUnit still("still", ParameterUnit::Group::expert, 0, ParameterUnit::Role::frozen);
    auto experts = std::make_shared<std::vector<ExpertBank::Expert>>();
    for (std::size_t e = 0; e < rows.size(); ++e) {
      ParameterUnit& unit = frozen[e] ? still : trained;
      const std::string name = "expert " + std::to_string(e);
      experts->push_back({.in = &unit.add(whole_parameter(name + " in", {8, 3}, 1.0, true)),
                          .down = &unit.add(whole_parameter(name + " down", {3, 4}, 1.0, true))});
    }
    for (ParameterUnit* unit : {&trained, &still}) {
      unit->allocate(stream, DType::f64, true);
      unit->initialize(stream, 3);
    }
    EXPECT_FALSE(still.gradients().defined());
    const auto table = std::make_shared<SegmentTable>(stream, rows);
    std::vector<double> x(static_cast<std::size_t>(table->total() * 3)), dy(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = Philox(5, "x").normal(i);
      dy[i] = Philox(5, "dy").normal(i);
    }
    Tape tape(stream);
    std::vector<std::string> final_gradients;
    tape.on_gradient_final([&](Parameter& parameter) { final_gradients.push_back(parameter.name); });
    const Variable input = tape.leaf(tensor_of(stream, {table->total(), 3}, x));
    const Variable y = tape.apply(ExpertBank{Activation::swiglu, experts, table}, input);
    tape.backward({{y, tensor_of(stream, {table->total(), 3}, dy)}});
    std::map<std::string, std::vector<double>> gradients;
    for (const std::string& name : final_gradients) gradients[name];
    for (const auto& parameter : trained.parameters()) {
      gradients.at(parameter->name) = values_of<double>(stream, parameter->gradient);
    }
    EXPECT_EQ(gradients.size(), trained.parameters().size());
    return std::pair(gradients, values_of<double>(stream, tape.gradient(input)));
  };
  const auto [all, dx] = run({false, false, false, false, false});
  for (const std::vector<bool>& frozen : {std::vector<bool>{true, false, false, true, false},
                                          {false, true, true, true, false},
                                          {true, true, true, true, true}}) {
    const auto [some, own_dx] = run(frozen);
    EXPECT_EQ(own_dx, dx);
    for (const auto& [name, values] : some) EXPECT_EQ(values, all.at(name)) << name;
  }
}

}  // namespace
}  // namespace lyceum
