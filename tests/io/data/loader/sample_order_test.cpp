#include "io/data/loader/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "core/error.h"

namespace lyceum {
namespace {

using Kind = SampleOrder::Kind;

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < order.count(); ++i) samples.push_back(order(epoch * order.count() + i));
  return samples;
}

TEST(SampleOrder, SequentialCountsAndWraps) {
  const SampleOrder order(Kind::sequential, 1, 10, 3);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<std::int64_t>{10, 11, 12}));
  EXPECT_EQ(epoch_of(order, 7), (std::vector<std::int64_t>{10, 11, 12}));
}

TEST(SampleOrder, ShuffledIsAnotherPermutationEveryEpoch) {
  for (const std::int64_t count : {1, 2, 3, 97, 256}) {
    const SampleOrder order(Kind::shuffled, 5, 1000, count);
    std::set<std::vector<std::int64_t>> seen;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<std::int64_t> samples = epoch_of(order, epoch);
      seen.insert(samples);
      std::ranges::sort(samples);
      std::vector<std::int64_t> all(static_cast<std::size_t>(count));
      std::iota(all.begin(), all.end(), 1000);
      EXPECT_EQ(samples, all);
    }
    if (count > 90) {
      EXPECT_EQ(seen.size(), 4);
    }
  }
}

TEST(SampleOrder, IsAPureFunctionOfSeedAndPosition) {
  const SampleOrder one(Kind::shuffled, 5, 0, 97), same(Kind::shuffled, 5, 0, 97), other(Kind::shuffled, 6, 0, 97);
  const auto forward = epoch_of(one, 3);
  std::vector<std::int64_t> backward;
  for (std::int64_t i = 96; i >= 0; --i) backward.insert(backward.begin(), same(3 * 97 + i));
  EXPECT_EQ(forward, backward);
  EXPECT_NE(forward, epoch_of(other, 3));
  EXPECT_NE(forward, epoch_of(SampleOrder(Kind::sequential, 5, 0, 97), 3));
}

TEST(SampleOrder, AnEmptyRangeCanBeMadeButNotRead) {
  const SampleOrder order(Kind::shuffled, 5, 0, 0);
  EXPECT_THROW(order(0), Error);
  EXPECT_THROW(SampleOrder(Kind::shuffled, 5, 0, 3)(-1), Error);
  EXPECT_THROW(SampleOrder(Kind::shuffled, 5, -1, 3), Error);
}

TEST(SampleOrder, SpreadTakesTheMiddleOfEqualParts) {
  for (const std::int64_t count : {1, 2, 7, 46, 1000}) {
    const SampleOrder all(Kind::sequential, 1, 5, count);
    for (std::int64_t samples = 1; samples <= count; samples += 1 + samples / 8) {
      const SampleOrder some = all.spread(samples);
      for (std::int64_t i = 0; i < samples; ++i) {
        const std::int64_t position = some(i) - 5;
        EXPECT_GE(position, i * count / samples) << samples << " of " << count;
        EXPECT_LT(position, (i + 1) * count / samples) << samples << " of " << count;
        const double middle =
            (static_cast<double>(i) + 0.5) * static_cast<double>(count) / static_cast<double>(samples);
        EXPECT_LE(std::abs(static_cast<double>(position) + 0.5 - middle), 1.5) << samples << " of " << count;
      }
      EXPECT_EQ(some(samples), some(0));  // the next epoch
    }
    EXPECT_THROW(all.spread(0), Error);
    EXPECT_THROW(all.spread(count + 1), Error);
  }
}

}  // namespace
}  // namespace lyceum
