#include "kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "core/device_table.h"
#include "kernels/cpu/rounding_numbers.h"
#include "kernels/flat_blocks.h"
#include "kernels/muon.h"
#include "support/grid.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

double value_of(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// The mean over all 2^16 numbers, which are equally likely, is the number itself: exactly, since every sum is a
/// multiple of the smallest difference and fits into a double.
TEST(StochasticRounding, HasTheNumberAsItsExpectedValue) {
  for (const float x : {1.f, 1.00001f, 3.14159f, -2.71828f, 1e-20f, -7.77e-30f, 1e-39f, 65504.7f, 3.3e38f, 0.f}) {
    double sum = 0;
    std::set<double> results;
    for (std::uint32_t number = 0; number < 1u << 16; ++number) {
      const double rounded = value_of(rounded_bits(x, number));
      sum += rounded;
      results.insert(rounded);
    }
    EXPECT_EQ(sum / (1 << 16), static_cast<double>(x)) << x;
    EXPECT_LE(results.size(), 2u) << x;
  }
}

TEST(StochasticRounding, KeepsNumbersOfBfloat16AndInfinitiesAndNan) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const float x : {0.f, -0.f, 1.f, -1.5f, 3.389e38f, 9.2e-41f, inf, -inf}) {
    const bfloat16 kept(x);
    for (const std::uint32_t number : {0u, 1u, 0x7fffu, 0x8000u, 0xffffu}) {
      EXPECT_EQ(rounded_bits(static_cast<float>(kept), number), kept.bits) << x;
    }
  }
  for (const std::uint32_t word : {0x7f800001u, 0x7fffffffu, 0xffffffffu, 0xff800001u}) {
    for (const std::uint32_t number : {0u, 0xffffu}) {
      EXPECT_TRUE(std::isnan(value_of(rounded_bits(std::bit_cast<float>(word), number)))) << std::hex << word;
    }
  }
}

/// Each state has every number of 16 bits exactly once.
TEST(StochasticRounding, NumbersOfBothStatesAreUniform) {
  for (const std::size_t state : {0u, 1u}) {
    std::vector<int> seen(1u << 16);
    for (std::uint32_t number = 0; number < 1u << 16; ++number) ++seen[number_of_state(number, state)];
    EXPECT_EQ(seen, std::vector<int>(1u << 16, 1)) << state;
  }
}

/// Slices of odd widths at odd positions, and one that begins before the tensor: each element has its half of the Philox
/// block of its logical element.
TEST(StochasticRounding, NumbersFollowTheElementsOfLogicalTensors) {
  const std::vector<RoundedSlice> slices{{.end = 700, .first = -333, .pitch = 37, .origin = 5, .stride = 101, .key = 1},
                                         {.end = 701, .first = 700, .pitch = 1, .origin = 7, .stride = 1, .key = 2},
                                         {.end = 2100, .first = 701, .pitch = 1399, .origin = 3, .stride = 1399, .key = 3},
                                         {.end = 2500, .first = 2101, .pitch = 3, .origin = 1 << 30, .stride = 8, .key = 4},
                                         {.end = 5000, .first = 2500, .pitch = 256, .origin = 0, .stride = 512, .key = 5}};
  const std::vector<std::int64_t> update{(std::int64_t{3} << 32) + 17};
  // The table has a slice before those of the tensor.
  std::vector<RoundedSlice> table{{.end = 9, .first = 0, .pitch = 9, .origin = 0, .stride = 9, .key = 9}};
  table.insert(table.end(), slices.begin(), slices.end());
  const StateRounding rounding{.slices = table, .update = update};
  for (const auto [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 1024}, {1024, 2048}, {2048, 3072},
                                   {4096, 5000}, {699, 702}, {2099, 2105}, {17, 18}, {5000, 5010}}) {
    std::vector<std::uint16_t> numbers(static_cast<std::size_t>(last - first));
    fill_rounding_numbers(rounding, 1, std::ssize(slices), first, last, numbers.data());
    for (std::int64_t i = first; i < last; ++i) {
      std::size_t s = 0;
      while (s + 1 < slices.size() && slices[s].end <= i) ++s;
      const std::int64_t at = i - slices[s].first, row = at / slices[s].pitch, col = at % slices[s].pitch;
      const auto element = static_cast<std::uint64_t>(slices[s].origin + row * slices[s].stride + col);
      const auto words = philox4x32({static_cast<std::uint32_t>(element / 8), static_cast<std::uint32_t>(element / 8 >> 32),
                                     17, 3},
                                    {static_cast<std::uint32_t>(slices[s].key), 0});
      const std::uint32_t word = words[element % 8 / 2];
      const std::uint32_t expected = element % 2 == 0 ? word & 0xffffu : word >> 16;
      ASSERT_EQ(numbers[static_cast<std::size_t>(i - first)], expected) << i;
    }
  }
}

TEST(StochasticRounding, KeysDifferBySeedAndTensor) {
  EXPECT_EQ(rounding_key(7, "lm_head/weight"), rounding_key(7, "lm_head/weight"));
  EXPECT_NE(rounding_key(7, "lm_head/weight"), rounding_key(8, "lm_head/weight"));
  EXPECT_NE(rounding_key(7, "lm_head/weight"), rounding_key(7, "model/norm/weight"));
}

/// The numbers of one tensor over many elements and updates are uniform (χ² with 255 degrees of freedom, 6 standard
/// deviations), and neighbours in elements and in updates are not correlated. The seed is fixed, so the result is too.
TEST(StochasticRounding, NumbersLookIndependent) {
  constexpr std::int64_t elements = 1024, updates = 256;
  const std::vector<RoundedSlice> slices{{.end = elements, .first = 0, .pitch = elements, .origin = 0,
                                          .stride = elements, .key = rounding_key(1, "tensor")}};
  std::vector<std::vector<std::uint16_t>> all;
  for (std::int64_t n = 1; n <= updates; ++n) {
    const std::vector<std::int64_t> update{n};
    fill_rounding_numbers({.slices = slices, .update = update}, 0, 1, 0, elements,
                          all.emplace_back(elements).data());
  }
  for (const int shift : {0, 8}) {  // both bytes
    std::vector<double> counts(256);
    for (const auto& numbers : all) {
      for (const std::uint16_t number : numbers) ++counts[number >> shift & 0xff];
    }
    double chi = 0;
    constexpr double expected = elements * updates / 256.0;
    for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
    EXPECT_LT(std::abs(chi - 255), 6 * std::sqrt(2 * 255.0)) << shift;
  }
  double along = 0, across = 0;
  const auto centred = [&](std::int64_t n, std::int64_t i) {
    return all[static_cast<std::size_t>(n)][static_cast<std::size_t>(i)] / 65536.0 - 0.5;
  };
  for (std::int64_t n = 0; n + 1 < updates; ++n) {
    for (std::int64_t i = 0; i + 1 < elements; ++i) {
      along += centred(n, i) * centred(n, i + 1);
      across += centred(n, i) * centred(n + 1, i);
    }
  }
  const double deviation = std::sqrt(static_cast<double>((elements - 1) * (updates - 1))) / 12;
  EXPECT_LT(std::abs(along), 5 * deviation);
  EXPECT_LT(std::abs(across), 5 * deviation);
}

constexpr double lr = 3e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, clip = 0.7, mu = 0.9;

/// A flat tensor with spans of both rules and its states, of type S, on the tested device. `Slices` say which elements of
/// a logical tensor [rows, cols] the flat tensor has.
template <class T, class S>
struct Problem {
  using A = Accumulator<T>;
  std::int64_t count;
  Stream stream = tested_stream();
  std::int64_t blocks = flat_blocks_of(count);
  std::vector<UpdateSpan> spans;
  Tensor master, first_state, second_state, gradient, weight, digests, damaged, sums, rows, span_table, slice_table;

  /// `spans`: of all elements. AdamW keeps its second state only for its own elements.
  Problem(std::vector<UpdateSpan> all_spans, std::vector<RoundedSlice> slices, const std::vector<A>& masters,
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
        stream, std::vector<AdamW::Numbers>{{.lr = lr,
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

constexpr std::int64_t count = 5000, second = 101 + 3 + 196;
/// Spans change within blocks, and where AdamW's second state is not aligned.
const std::vector<UpdateSpan>& mixed_spans() {
  static const std::vector<UpdateSpan> spans{{.end = 101, .weight_decay = 0.1, .rule = 0, .states = 2, .without = 0},
                                             {.end = 3000, .weight_decay = 0.2, .rule = 1, .states = 1, .without = 0},
                                             {.end = 3003, .weight_decay = 0, .rule = 0, .states = 2, .without = 2899},
                                             {.end = 3004, .weight_decay = 0, .rule = 1, .states = 1, .without = 2899},
                                             {.end = 3200, .weight_decay = 0.1, .rule = 0, .states = 2, .without = 2900},
                                             {.end = count, .weight_decay = 0.1, .rule = 1, .states = 1, .without = 2900}};
  return spans;
}
const std::vector<RoundedSlice>& mixed_slices() {
  static const std::vector<RoundedSlice> slices{
      {.end = 1500, .first = 0, .pitch = 30, .origin = 11, .stride = 70, .key = 0x123456789abcdefu},
      {.end = count, .first = 1500, .pitch = 3500, .origin = 0, .stride = 3500, .key = 77}};
  return slices;
}
std::vector<bfloat16> halves(std::int64_t elements, const char* purpose, bool squares) {
  std::vector<bfloat16> values;
  for (const float x : Grid<float>::random(1, elements, purpose).values) values.push_back(bfloat16(squares ? x * x : x));
  return values;
}
template <class A>
std::vector<A> widened(const std::vector<bfloat16>& from) {
  std::vector<A> values;
  for (const bfloat16 x : from) values.push_back(static_cast<A>(static_cast<float>(x)));
  return values;
}
template <class T>
Problem<T, bfloat16> rounded_problem() {
  using A = Accumulator<T>;
  return {mixed_spans(),
          mixed_slices(),
          Grid<A>::random(1, count, "weight").values,
          halves(count, "first", false),
          halves(second, "second", true),
          Grid<A>::random(1, count, "gradient").values};
}

/// One step from states that bf16 represents: the kernel with states in accumulator precision has the states before
/// rounding. They are rounded with the element's number, and the weights are those of that kernel.
TYPED_TEST(RoundedStates, AreThoseOfTheExactRuleRounded) {
  using A = Accumulator<TypeParam>;
  Problem<TypeParam, bfloat16> rounded = rounded_problem<TypeParam>();
  Problem<TypeParam, A> exact(mixed_spans(), mixed_slices(), Grid<A>::random(1, count, "weight").values,
                              widened<A>(halves(count, "first", false)), widened<A>(halves(second, "second", true)),
                              Grid<A>::random(1, count, "gradient").values);
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
  for (std::int64_t i = 0; i < count; ++i) {
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
  Problem<TypeParam, bfloat16> once = rounded_problem<TypeParam>(), later = rounded_problem<TypeParam>();
  using A = Accumulator<TypeParam>;
  later.step(5, true);
  const std::vector<bfloat16> before = halves(count, "first", false);
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
  Problem<TypeParam, bfloat16> problem = rounded_problem<TypeParam>();
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
    Problem<TypeParam, bfloat16> problem({{.end = elements, .weight_decay = 0}},
                                         {{.end = elements, .first = 0, .pitch = end - begin, .origin = begin,
                                           .stride = cols, .key = key}},
                                         master, zeros, zeros, gradient);
    for (std::int64_t n = 1; n <= 3; ++n) problem.step(n);
    auto states = problem.template read<bfloat16>(problem.first_state);
    const auto squares = problem.template read<bfloat16>(problem.second_state);
    states.insert(states.end(), squares.begin(), squares.end());
    return states;
  };
  const auto whole = states_of_columns(0, cols);
  for (const auto [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 23}, {23, 60}}) {
    const auto part = states_of_columns(begin, end);
    std::size_t next = 0;
    for (std::int64_t r = 0; r < 2 * rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        EXPECT_EQ(part[next++].bits, whole[static_cast<std::size_t>(r * cols + c)].bits) << r << ", " << c;
      }
    }
  }
}

/// After 1,000 updates with β2 = 0.999 from a second moment of 1 with small gradients, the mean over the elements is that
/// of exact arithmetic, within 5 standard errors. Rounding to nearest would have lost every change: each is below half of
/// the distance to the next bfloat16 number.
TYPED_TEST(RoundedStates, FollowASlowDecayThatNearestRoundingLoses) {
  using A = Accumulator<TypeParam>;
  constexpr std::int64_t elements = 4096, updates = 1000;
  const std::vector<A> ones(elements, A(1)), gradients(elements, A(0.3));
  const std::vector<bfloat16> start(elements, bfloat16(1));
  Problem<TypeParam, bfloat16> problem({{.end = elements, .weight_decay = 0}},
                                       {{.end = elements, .first = 0, .pitch = elements, .origin = 0,
                                         .stride = elements, .key = rounding_key(3, "tensor")}},
                                       ones, start, start, gradients);
  double exact = 1;
  float nearest = 1;
  const double g = 0.3 * clip;
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
