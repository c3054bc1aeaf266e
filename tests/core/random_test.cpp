#include "core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "core/error.h"

namespace lyceum {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers: the file kat_vectors of Random123 1.14.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The first outputs of Vigna's generator splitmix64 for the seeds 0 and 1234567.
TEST(Splitmix64, KnownAnswers) {
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317u);
  EXPECT_EQ(splitmix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

TEST(Philox, StreamsDifferBySeedAndPurpose) {
  std::set<Words> blocks;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
    for (const char* purpose : {"", "a", "b", "ab"}) {
      for (const std::uint64_t counter : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
        blocks.insert(Philox(seed, purpose).block(counter));
      }
    }
  }
  EXPECT_EQ(blocks.size(), 36u);
  EXPECT_EQ(Philox(7, "a").block(3), Philox(7, "a").block(3));
}

TEST(Philox, UniformMomentsAndRange) {
  const Philox random(1, "uniform");
  constexpr int count = 100000;
  double sum = 0, squares = 0, neighbours = 0, previous = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = random.uniform(i);
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    squares += u * u;
    neighbours += (u - 0.5) * previous;
    previous = u - 0.5;
  }
  EXPECT_NEAR(sum / count, 0.5, 0.004);  // four standard errors
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.004);
  EXPECT_NEAR(neighbours / count, 0, 0.0011);
}

TEST(Philox, NormalMoments) {
  const Philox random(1, "normal");
  constexpr int count = 200000;
  std::array<double, 5> moment{};
  double pairs = 0;
  int beyond_three = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = random.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    for (int power = 1; power <= 4; ++power) moment[static_cast<std::size_t>(power)] += std::pow(x, power) / count;
    if (i % 2) pairs += x * random.normal(i - 1) / (count / 2);
    beyond_three += std::abs(x) > 3;
  }
  EXPECT_NEAR(moment[1], 0, 0.009);  // four standard errors each: σ² = 1, 2, 15, 96 over the count
  EXPECT_NEAR(moment[2], 1, 0.0127);
  EXPECT_NEAR(moment[3], 0, 0.035);
  EXPECT_NEAR(moment[4], 3, 0.088);
  EXPECT_NEAR(pairs, 0, 0.0127);  // correlation of the sine and cosine of one block
  EXPECT_NEAR(static_cast<double>(beyond_three) / count, 0.0027, 0.0005);
}

TEST(Philox, BelowIsEvenAndInRange) {
  const Philox random(1, "below");
  std::array<int, 7> hits{};
  for (std::uint64_t i = 0; i < 70000; ++i) {
    const std::uint64_t value = random.below(7, i);
    ASSERT_LT(value, 7u);
    ++hits[value];
  }
  for (const int count : hits) EXPECT_NEAR(count, 10000, 400);
  EXPECT_EQ(random.below(1, 5), 0u);
  EXPECT_THROW(random.below(0, 0), Error);
}

TEST(Permutation, IsABijection) {
  for (const std::uint64_t size : {1u, 2u, 3u, 4u, 5u, 1000u, 4096u, 4097u}) {
    const Permutation permutation(3, "order", size);
    std::vector<bool> met(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t to = permutation(i);
      ASSERT_LT(to, size);
      ASSERT_FALSE(met[to]);
      met[to] = true;
    }
    EXPECT_THROW(permutation(size), Error);
  }
  EXPECT_THROW(Permutation(3, "order", 0)(0), Error);
  EXPECT_THROW(Permutation(3, "order", (std::uint64_t{1} << 62) + 1), Error);
  const Permutation large(3, "order", std::uint64_t{1} << 62);
  EXPECT_LT(large((std::uint64_t{1} << 62) - 1), std::uint64_t{1} << 62);
}

TEST(Permutation, MixesAndDependsOnSeed) {
  constexpr std::uint64_t size = 4097;
  const Permutation one(3, "order", size), two(4, "order", size);
  int fixed = 0, same = 0, rising = 0;
  for (std::uint64_t i = 0; i < size; ++i) {
    fixed += one(i) == i;
    same += one(i) == two(i);
    if (i) rising += one(i) > one(i - 1);
  }
  EXPECT_LT(fixed, 10);
  EXPECT_LT(same, 10);
  EXPECT_NEAR(rising, 2048, 100);  // σ = √(n/12) ≈ 18
}

TEST(FillNormal, AShardIsTheSliceOfTheWhole) {
  const Philox random(9, "model/layers/0/weight");
  std::vector<float> whole(10001), shard(4999), one(1);
  fill_normal(whole, 0.02, random, 0);
  fill_normal(shard, 0.02, random, 5001);
  fill_normal(one, 0.02, random, 77);
  fill_normal(std::span<float>(), 0.02, random, 5);
  EXPECT_EQ(shard, std::vector<float>(whole.begin() + 5001, whole.begin() + 10000));
  EXPECT_EQ(one[0], whole[77]);
  EXPECT_EQ(whole[3], static_cast<float>(0.02 * random.normal(3)));
}

}  // namespace
}  // namespace lyceum
