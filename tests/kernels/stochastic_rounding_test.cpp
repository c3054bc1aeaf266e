#include "kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "kernels/cpu/rounding_numbers.h"
#include "kernels/flat_blocks.h"

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

/// Slices of odd widths at odd positions, and one that begins before the tensor: each element has its half of the
/// Philox block of its logical element.
TEST(StochasticRounding, NumbersFollowTheElementsOfLogicalTensors) {
  const std::vector<RoundedSlice> slices{
      {.end = 700, .first = -333, .pitch = 37, .origin = 5, .stride = 101, .key = 1},
      {.end = 701, .first = 700, .pitch = 1, .origin = 7, .stride = 1, .key = 2},
      {.end = 2100, .first = 701, .pitch = 1399, .origin = 3, .stride = 1399, .key = 3},
      {.end = 2500, .first = 2101, .pitch = 3, .origin = 1 << 30, .stride = 8, .key = 4},
      {.end = 5000, .first = 2500, .pitch = 256, .origin = 0, .stride = 512, .key = 5}};
  const std::vector<std::int64_t> update{(std::int64_t{3} << 32) + 17};
  // The table has a slice before those of the tensor.
  std::vector<RoundedSlice> table{{.end = 9, .first = 0, .pitch = 9, .origin = 0, .stride = 9, .key = 9}};
  table.insert(table.end(), slices.begin(), slices.end());
  const StateRounding rounding{.slices = table, .update = update};
  for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 1024},
                                    {1024, 2048},
                                    {2048, 3072},
                                    {4096, 5000},
                                    {699, 702},
                                    {2099, 2105},
                                    {17, 18},
                                    {5000, 5010}}) {
    std::vector<std::uint16_t> numbers(static_cast<std::size_t>(last - first));
    fill_rounding_numbers(rounding, 1, std::ssize(slices), first, last, numbers.data());
    for (std::int64_t i = first; i < last; ++i) {
      std::size_t s = 0;
      while (s + 1 < slices.size() && slices[s].end <= i) ++s;
      const std::int64_t at = i - slices[s].first, row = at / slices[s].pitch, col = at % slices[s].pitch;
      const auto element = static_cast<std::uint64_t>(slices[s].origin + row * slices[s].stride + col);
      const auto words =
          philox4x32({static_cast<std::uint32_t>(element / 8), static_cast<std::uint32_t>(element / 8 >> 32), 17, 3},
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
  const std::vector<RoundedSlice> slices{{.end = elements,
                                          .first = 0,
                                          .pitch = elements,
                                          .origin = 0,
                                          .stride = elements,
                                          .key = rounding_key(1, "tensor")}};
  std::vector<std::vector<std::uint16_t>> all;
  for (std::int64_t n = 1; n <= updates; ++n) {
    const std::vector<std::int64_t> update{n};
    fill_rounding_numbers({.slices = slices, .update = update}, 0, 1, 0, elements, all.emplace_back(elements).data());
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

}  // namespace
}  // namespace lyceum
