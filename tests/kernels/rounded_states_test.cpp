// Updates of states in bf16 (see kernels/stochastic_rounding.h), on the CPU and on a GPU if the machine has one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/device_table.h"
#include "kernels/muon.h"
#include "support/grid.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

/// A flat tensor with spans of both rules and its states, of type S, on the tested device. `Slices` say which elements
/// of a logical tensor [rows, cols] the flat tensor has.
template <class T, class S>
struct RoundedProblem {
  using A = Accumulator<T>;
  static constexpr double lr = 3e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, clip = 0.7, mu = 0.9;
  std::int64_t count;
  Stream stream = tested_stream();
  std::int64_t blocks = flat_blocks_of(count);
  std::vector<UpdateSpan> spans;
  Tensor master, first_state, second_state, gradient, weight, digests, damaged, sums, rows, span_table, slice_table;

  /// `spans`: of all elements. AdamW keeps its second state only for its own elements.
  RoundedProblem(std::vector<UpdateSpan> all_spans, std::vector<RoundedSlice> slices, const std::vector<A>& masters,
                 const std::vector<S>& first, const std::vector<S>& second, const std::vector<A>& gradients)
      : count(std::ssize(masters)),
        spans(std::move(all_spans)),
        master(table_of(stream, masters)),
        first_state(table_of(stream, first)),
        second_state(table_of(stream, second)),
        gradient(table_of(stream, gradients)),
        weight(table_of(stream, std::vector<T>(masters.size()))),
        digests(table_of(stream, std::vector<std::uint32_t>(static_cast<std::size_t>(blocks)))),
        damaged(table_of(stream, std::vector<std::uint32_t>(1))),
        sums(table_of(stream, std::vector<double>(static_cast<std::size_t>(2 * blocks)))),
        rows(table_of(stream, std::vector<UpdatedTensor<T, 2, S>>{{.master = at<A>(master),
                                                                   .state = {at<S>(first_state), at<S>(second_state)},
                                                                   .gradient = at<A>(gradient),
                                                                   .weight = at<T>(weight),
                                                                   .count = count,
                                                                   .first_block = 0,
                                                                   .first_span = 0,
                                                                   .first_slice = 0,
                                                                   .slices = std::ssize(slices)}})),
        span_table(table_of(stream, spans)),
        slice_table(table_of(stream, slices)) {}

  template <class X>
  static X* at(const Tensor& memory) {
    return reinterpret_cast<X*>(memory.raw());
  }
  template <class X>
  std::vector<X> read(const Tensor& memory) const {
    std::vector<X> values(memory.bytes() / sizeof(X));
    copy_to_host(stream, values.data(), memory.raw(), memory.bytes());
    return values;
  }
  UpdateDigests watch() const {
    return {writable_rows_of<std::uint32_t>(digests), writable_rows_of<std::uint32_t>(damaged)};
  }
  std::uint32_t damage() const { return read<std::uint32_t>(damaged)[0]; }
  void check(bool renew) {
    launch(stream, CheckDigests<T, 2, S>{.tensors = rows_of<UpdatedTensor<T, 2, S>>(rows),
                                         .spans = rows_of<UpdateSpan>(span_table),
                                         .blocks = blocks,
                                         .digests = watch(),
                                         .renew = renew});
  }
  /// Runs both parts of update `n` of a model with Muon.
  void step(std::int64_t n, bool skip = false) {
    const Tensor numbers = table_of(
                     stream,
                     std::vector<AdamW::Numbers>{{.lr = lr,
                                                  .rate = lr / (1 - std::pow(beta1, static_cast<double>(n))),
                                                  .inverse_bias2 = 1 / (1 - std::pow(beta2, static_cast<double>(n))),
                                                  .update = n}}),
                 verdict = table_of(stream, std::vector<StepVerdict>{{.gradient_scale = clip, .skip = skip ? 1. : 0.}}),
                 offsets = table_of(stream, std::vector<std::int64_t>{0, blocks});
    const auto known = rows_of<AdamW::Numbers>(numbers);
    const StateRounding rounding{.slices = rows_of<RoundedSlice>(slice_table), .update = {&known.data()->update, 1}};
    launch(stream, UpdateMomentum<T, S>{.tensors = rows_of<UpdatedTensor<T, 2, S>>(rows),
                                        .spans = rows_of<UpdateSpan>(span_table),
                                        .blocks = blocks,
                                        .momentum = mu,
                                        .verdict = rows_of<StepVerdict>(verdict),
                                        .digests = watch(),
                                        .rounding = rounding});
    const AdamW adamw{.beta1 = beta1, .beta2 = beta2, .eps = eps, .numbers = known};
    launch(stream, UpdateWeights<T, AdamWOrMuon, S>{.tensors = rows_of<UpdatedTensor<T, 2, S>>(rows),
                                                    .spans = rows_of<UpdateSpan>(span_table),
                                                    .blocks = blocks,
                                                    .rule = {adamw, {known}},
                                                    .verdict = rows_of<StepVerdict>(verdict),
                                                    .weight_offsets = rows_of<std::int64_t>(offsets).first(1),
                                                    .update_offsets = rows_of<std::int64_t>(offsets).last(1),
                                                    .sums = writable_rows_of<double>(sums),
                                                    .digests = watch(),
                                                    .rounding = rounding});
  }
};

template <class T>
class RoundedStates : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(RoundedStates, Types);

constexpr std::int64_t mixed_count = 5000, mixed_second = 101 + 3 + 196;  // elements; those with a second state
/// Spans change within blocks, and where AdamW's second state is not aligned.
const std::vector<UpdateSpan>& mixed_spans() {
  static const std::vector<UpdateSpan> spans{
      {.end = 101, .weight_decay = 0.1, .rule = 0, .states = 2, .without = 0},
      {.end = 3000, .weight_decay = 0.2, .rule = 1, .states = 1, .without = 0},
      {.end = 3003, .weight_decay = 0, .rule = 0, .states = 2, .without = 2899},
      {.end = 3004, .weight_decay = 0, .rule = 1, .states = 1, .without = 2899},
      {.end = 3200, .weight_decay = 0.1, .rule = 0, .states = 2, .without = 2900},
      {.end = mixed_count, .weight_decay = 0.1, .rule = 1, .states = 1, .without = 2900}};
  return spans;
}
const std::vector<RoundedSlice>& mixed_slices() {
  static const std::vector<RoundedSlice> slices{
      {.end = 1500, .first = 0, .pitch = 30, .origin = 11, .stride = 70, .key = 0x123456789abcdefu},
      {.end = mixed_count, .first = 1500, .pitch = 3500, .origin = 0, .stride = 3500, .key = 77}};
  return slices;
}
std::vector<bfloat16> halves(std::int64_t elements, const char* purpose, bool squares) {
  std::vector<bfloat16> values;
  for (const float x : Grid<float>::random(1, elements, purpose).values)
    values.push_back(bfloat16(squares ? x * x : x));
  return values;
}
template <class A>
std::vector<A> widened(const std::vector<bfloat16>& from) {
  std::vector<A> values;
  for (const bfloat16 x : from) values.push_back(static_cast<A>(static_cast<float>(x)));
  return values;
}
template <class T>
RoundedProblem<T, bfloat16> mixed_problem() {
  using A = Accumulator<T>;
  return {mixed_spans(),
          mixed_slices(),
          Grid<A>::random(1, mixed_count, "weight").values,
          halves(mixed_count, "first", false),
          halves(mixed_second, "second", true),
          Grid<A>::random(1, mixed_count, "gradient").values};
}

/// One step from states that bf16 represents: the kernel with states in accumulator precision has the states before
/// rounding. They are rounded with the element's number, and the weights are those of that kernel.
TYPED_TEST(RoundedStates, AreThoseOfTheExactRuleRounded) {
  using A = Accumulator<TypeParam>;
  RoundedProblem<TypeParam, bfloat16> rounded = mixed_problem<TypeParam>();
  RoundedProblem<TypeParam, A> exact(mixed_spans(), mixed_slices(), Grid<A>::random(1, mixed_count, "weight").values,
                                     widened<A>(halves(mixed_count, "first", false)),
                                     widened<A>(halves(mixed_second, "second", true)),
                                     Grid<A>::random(1, mixed_count, "gradient").values);
  constexpr std::int64_t n = 12345;
  rounded.step(n);
  exact.step(n);
  const auto masters = rounded.template read<A>(rounded.master), exact_masters = exact.template read<A>(exact.master);
  const auto number_of = [&](std::int64_t i) {
    const RoundedSlice& slice = mixed_slices()[i < mixed_slices()[0].end ? 0 : 1];
    return rounding_number(rounding_block(slice.key, n, slice.element(i) / 8), slice.element(i));
  };
  std::int64_t others = 0;  // compilers may contract products differently in the two kernels
  const auto expect_rounded = [&](std::uint16_t bits, A x, std::uint32_t number, std::int64_t i) {
    const std::uint16_t expected = rounded_bits(static_cast<float>(x), number);
    others += bits != expected;
    EXPECT_LE(std::abs(static_cast<int>(bits) - static_cast<int>(expected)), 1) << i;
  };
  const auto first = rounded.template read<bfloat16>(rounded.first_state),
             second_states = rounded.template read<bfloat16>(rounded.second_state);
  const auto exact_first = exact.template read<A>(exact.first_state),
             exact_second = exact.template read<A>(exact.second_state);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < mixed_count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double expected = to_double(exact_masters[at]);
    EXPECT_TRUE(std::abs(to_double(masters[at]) - expected) <= 1e-6 * (1 + std::abs(expected))) << i;
    expect_rounded(first[at].bits, exact_first[at], number_of(i), i);
    const UpdateSpan& span = *std::ranges::find_if(mixed_spans(), [&](const UpdateSpan& s) { return i < s.end; });
    if (span.rule != 0) continue;
    expect_rounded(second_states[next].bits, exact_second[next], number_of_state(number_of(i), 1), i);
    ++next;
  }
  EXPECT_EQ(next, second_states.size());
  EXPECT_LE(others, 5);
}

TYPED_TEST(RoundedStates, RepeatASkippedUpdateWithTheSameBits) {
  RoundedProblem<TypeParam, bfloat16> once = mixed_problem<TypeParam>(), later = mixed_problem<TypeParam>();
  using A = Accumulator<TypeParam>;
  later.step(5, true);
  const std::vector<bfloat16> before = halves(mixed_count, "first", false);
  const auto kept = later.template read<bfloat16>(later.first_state);
  EXPECT_TRUE(std::ranges::equal(kept, before, {}, &bfloat16::bits, &bfloat16::bits));
  once.step(5);
  later.step(5);
  EXPECT_TRUE(std::ranges::equal(once.template read<bfloat16>(once.first_state),
                                 later.template read<bfloat16>(later.first_state), {}, &bfloat16::bits,
                                 &bfloat16::bits));
  EXPECT_EQ(once.template read<A>(once.master), later.template read<A>(later.master));
}

TYPED_TEST(RoundedStates, DigestsFollowBothPartsOfAStep) {
  RoundedProblem<TypeParam, bfloat16> problem = mixed_problem<TypeParam>();
  problem.check(true);
  for (std::int64_t n = 1; n <= 3; ++n) {
    problem.step(n);
    EXPECT_EQ(problem.damage(), 0u);
    problem.check(false);
    EXPECT_EQ(problem.damage(), 0u);
  }
  for (const std::int64_t element : {50, 2000, 4999}) {
    auto states = problem.template read<bfloat16>(problem.first_state);
    states[static_cast<std::size_t>(element)].bits ^= 0x10u;
    copy_to_device(problem.stream, problem.first_state.raw(), states.data(), problem.first_state.bytes());
    problem.check(false);
    EXPECT_EQ(problem.damage(), problem.blocks - element / flat_block) << element;
    const std::vector<std::uint32_t> none{0};
    copy_to_device(problem.stream, problem.damaged.raw(), none.data(), sizeof none[0]);
    problem.check(true);
  }
}

/// A matrix [40, 60], once whole and once as its columns [0, 23) and [23, 60): the same elements have the same states.
TYPED_TEST(RoundedStates, AreTheSameHoweverAMatrixIsCut) {
  using A = Accumulator<TypeParam>;
  constexpr std::int64_t rows = 40, cols = 60;
  const std::vector<A> masters = Grid<A>::random(1, rows * cols, "weight").values,
                       gradients = Grid<A>::random(1, rows * cols, "gradient").values;
  const std::uint64_t key = rounding_key(1, "matrix");
  const auto states_of_columns = [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> master, gradient;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        master.push_back(masters[static_cast<std::size_t>(r * cols + c)]);
        gradient.push_back(gradients[static_cast<std::size_t>(r * cols + c)]);
      }
    }
    const auto elements = std::ssize(master);
    const std::vector<bfloat16> zeros(master.size(), bfloat16(0));
    RoundedProblem<TypeParam, bfloat16> problem(
        {{.end = elements, .weight_decay = 0}},
        {{.end = elements, .first = 0, .pitch = end - begin, .origin = begin, .stride = cols, .key = key}}, master,
        zeros, zeros, gradient);
    for (std::int64_t n = 1; n <= 3; ++n) problem.step(n);
    auto states = problem.template read<bfloat16>(problem.first_state);
    const auto squares = problem.template read<bfloat16>(problem.second_state);
    states.insert(states.end(), squares.begin(), squares.end());
    return states;
  };
  const auto whole = states_of_columns(0, cols);
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 23}, {23, 60}}) {
    const auto part = states_of_columns(begin, end);
    std::size_t next = 0;
    for (std::int64_t r = 0; r < 2 * rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        EXPECT_EQ(part[next++].bits, whole[static_cast<std::size_t>(r * cols + c)].bits) << r << ", " << c;
      }
    }
  }
}

/// After 1,000 updates with β2 = 0.999 from a second moment of 1 with small gradients, the mean over the elements is
/// that of exact arithmetic, within 5 standard errors. Rounding to nearest would have lost every change: each is below
/// half of the distance to the next bfloat16 number.
TYPED_TEST(RoundedStates, FollowASlowDecayThatNearestRoundingLoses) {
  using A = Accumulator<TypeParam>;
  constexpr std::int64_t elements = 4096, updates = 1000;
  const std::vector<A> ones(elements, A(1)), gradients(elements, A(0.3));
  const std::vector<bfloat16> start(elements, bfloat16(1));
  RoundedProblem<TypeParam, bfloat16> problem({{.end = elements, .weight_decay = 0}},
                                              {{.end = elements,
                                                .first = 0,
                                                .pitch = elements,
                                                .origin = 0,
                                                .stride = elements,
                                                .key = rounding_key(3, "tensor")}},
                                              ones, start, start, gradients);
  double exact = 1;
  float nearest = 1;
  constexpr double beta2 = RoundedProblem<TypeParam, bfloat16>::beta2;
  const double g = 0.3 * RoundedProblem<TypeParam, bfloat16>::clip;
  for (std::int64_t n = 1; n <= updates; ++n) {
    problem.step(n);
    exact = beta2 * exact + (1 - beta2) * g * g;
    nearest = static_cast<float>(bfloat16(static_cast<float>(beta2 * nearest + (1 - beta2) * g * g)));
  }
  double sum = 0, squares = 0;
  for (const bfloat16 v : problem.template read<bfloat16>(problem.second_state)) {
    sum += to_double(v);
    squares += to_double(v) * to_double(v);
  }
  const double mean = sum / elements, error = std::sqrt((squares / elements - mean * mean) / elements);
  EXPECT_LT(std::abs(mean - exact), 5 * error) << mean << " for " << exact;
  EXPECT_LT(error, 5e-3 * exact);
  EXPECT_EQ(nearest, 1.f);
  EXPECT_LT(exact, 0.5);
}

}  // namespace
}  // namespace lyceum
