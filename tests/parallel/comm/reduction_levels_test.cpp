#include "parallel/comm/reduction_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "parallel/comm/all_gather.h"
#include "parallel/comm/all_reduce.h"
#include "parallel/comm/reduce_scatter.h"

namespace lyceum {
namespace {

TEST(ReductionLevels, RadicesAreFoursThenPrimeFactorsInLargeGroups) {
  using Radices = std::vector<int>;
  EXPECT_EQ(reduction_radices(1), Radices{1});
  EXPECT_EQ(reduction_radices(7), Radices{7});
  EXPECT_EQ(reduction_radices(8), Radices{8});
  EXPECT_EQ(reduction_radices(9), (Radices{3, 3}));
  EXPECT_EQ(reduction_radices(10), (Radices{2, 5}));
  EXPECT_EQ(reduction_radices(11), Radices{11});
  EXPECT_EQ(reduction_radices(32), (Radices{4, 4, 2}));
  EXPECT_EQ(reduction_radices(360), (Radices{4, 2, 3, 3, 5}));
  EXPECT_EQ(reduction_radices(4096), Radices(6, 4));
}

/// Simulates a reduction among `ranks` ranks. terms[r][s] has a bit for each rank whose value of slice s is contained
/// in the partial sum of rank r.
TEST(ReductionLevels, EveryRankEndsWithTheWholeSumOfOneSlice) {
  for (const int ranks : {2, 8, 9, 10, 12, 13, 16, 30, 48, 64}) {
    std::vector<std::vector<ReductionLevel>> levels;
    for (int rank = 0; rank < ranks; ++rank) levels.push_back(reduction_levels(rank, ranks));
    const auto at = [](int i) { return static_cast<std::size_t>(i); };
    std::vector<std::vector<std::uint64_t>> terms(at(ranks), std::vector<std::uint64_t>(at(ranks)));
    for (int rank = 0; rank < ranks; ++rank) std::ranges::fill(terms[at(rank)], std::uint64_t{1} << rank);
    for (std::size_t l = 0; l < levels[0].size(); ++l) {
      auto next = terms;
      for (int rank = 0; rank < ranks; ++rank) {
        const ReductionLevel& own = levels[at(rank)][l];
        for (int step = 1; step < own.radix; ++step) {
          const int digit = own.digit_at(step), peer = rank + (digit - own.digit) * own.stride;
          ASSERT_GE(peer, 0);
          ASSERT_LT(peer, ranks);
          ASSERT_EQ(levels[at(peer)][l].digit, digit);
          ASSERT_EQ(levels[at(peer)][l].first, own.first) << "the peers of a level have the same slices";
          for (int slice = own.first_of(own.digit); slice < own.first_of(own.digit) + own.span; ++slice) {
            ASSERT_EQ(next[at(rank)][at(slice)] & terms[at(peer)][at(slice)], 0u) << "no value is added twice";
            next[at(rank)][at(slice)] |= terms[at(peer)][at(slice)];
          }
        }
      }
      terms = next;
    }
    const std::vector<int> rank_of = ranks_of_slices(ranks);
    const std::uint64_t all = ranks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ranks) - 1;
    for (int slice = 0; slice < ranks; ++slice) {
      const ReductionLevel last = levels[at(rank_of[at(slice)])].back();
      EXPECT_EQ(last.span, 1);
      EXPECT_EQ(last.first_of(last.digit), slice);
      EXPECT_EQ(terms[at(rank_of[at(slice)])][at(slice)], all) << "slice " << slice << " of " << ranks;
    }
  }
}

/// Returns the sum of `values`, in the order of levels with these radices: the sums of as many equal blocks as the last
/// radix says, in order.
float sum_of_blocks(std::span<const float> values, std::span<const int> radices) {
  if (radices.empty()) return values[0];
  const std::size_t block = values.size() / static_cast<std::size_t>(radices.back());
  float sum = sum_of_blocks(values.first(block), radices.first(radices.size() - 1));
  for (std::size_t at = block; at < values.size(); at += block) {
    sum += sum_of_blocks(values.subspan(at, block), radices.first(radices.size() - 1));
  }
  return sum;
}

TEST(ReductionLevels, ReduceByLevelsAddsInTheirOrderAndRoundsOnce) {
  for (const int ranks : {2, 8, 9, 12, 16, 22, 64}) {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<bfloat16>> rounded;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < 5; ++i) {
        const float value = static_cast<float>((rank * 7919 + i * 104729) % 20011) / 7.0F - 1000.0F;
        if (i == 0) {
          values.emplace_back();
          rounded.emplace_back();
        }
        values.back().push_back(value);
        rounded.back().emplace_back(value);
      }
    }
    std::vector<const std::byte*> sources, rounded_sources;
    for (const auto& each : values) sources.push_back(reinterpret_cast<const std::byte*>(each.data()));
    for (const auto& each : rounded) rounded_sources.push_back(reinterpret_cast<const std::byte*>(each.data()));
    std::vector<float> sums(5);
    std::vector<bfloat16> rounded_sums(5);
    reduce_by_levels(sources, reinterpret_cast<std::byte*>(sums.data()), 5, DType::f32, Reduction::sum);
    reduce_by_levels(rounded_sources, reinterpret_cast<std::byte*>(rounded_sums.data()), 5, DType::bf16,
                     Reduction::sum);
    const std::vector<int> radices = reduction_radices(ranks);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::vector<float> terms, rounded_terms;
      for (const auto& each : values) terms.push_back(each[i]);
      for (const auto& each : rounded) rounded_terms.push_back(static_cast<float>(each[i]));
      EXPECT_EQ(sums[i], sum_of_blocks(terms, radices)) << ranks;
      EXPECT_EQ(rounded_sums[i].bits, bfloat16(sum_of_blocks(rounded_terms, radices)).bits) << ranks;
    }
  }
}

/// The largest number over all ranks, or in large groups over every 61st and the last one. The places of ranks in their
/// levels repeat with periods that are powers of two, which 61 shares no factor with.
template <class Messages>
std::int64_t most(int ranks, const Messages& messages) {
  const int stride = ranks > 256 ? 61 : 1;
  std::int64_t most = messages(ranks - 1);
  for (int rank = 0; rank < ranks; rank += stride) most = std::max(most, messages(rank));
  return most;
}

TEST(ReductionLevels, MessagesPerRankGrowWithTheLogarithmOfTheRanks) {
  constexpr std::int64_t megabyte = std::int64_t{1} << 20, size = 8 * megabyte / 4;  // f32 values of 8 chunks
  for (int ranks = 16; ranks <= 4096; ranks *= 2) {
    const std::int64_t doublings = std::bit_width(static_cast<unsigned>(ranks)) - 1;
    const std::vector<std::int64_t> extents(static_cast<std::size_t>(ranks), size / ranks);
    const std::int64_t of_levels = 3 * doublings / 2;  // 3 messages for two doublings, 1 for a single last one
    EXPECT_LE(most(ranks, [&](int rank) { return messages_of_all_reduce(rank, ranks, size, DType::f32); }),
              8 * 2 * of_levels);
    EXPECT_LE(most(ranks, [&](int rank) { return messages_of_all_reduce(rank, ranks, size / 64, DType::f32); }),
              2 * of_levels)
        << "values of less than a chunk";
    EXPECT_LE(most(ranks, [&](int rank) { return messages_of_all_reduce(rank, ranks, size / 128, DType::f32); }),
              of_levels)
        << "along a tree";
    EXPECT_LE(most(ranks, [&](int rank) { return messages_of_reduce_scatter(rank, extents, DType::f32); }),
              8 * of_levels);
    EXPECT_LE(most(ranks, [&](int rank) { return messages_of_all_gather(rank, extents); }), 2 * doublings);
    EXPECT_GE(messages_of_all_gather(0, extents), doublings);
  }
}

TEST(ReductionLevels, MessagesOfAReduceScatterDoNotDependOnHowItsPartsAreDivided) {
  constexpr std::int64_t size = std::int64_t{4} << 20;  // f32 values of 16 rounds
  for (const int ranks : {16, 64, 256}) {
    const auto count = static_cast<std::size_t>(ranks);
    const auto most_for = [&](const std::vector<std::int64_t>& extents) {
      return most(ranks, [&](int rank) { return messages_of_reduce_scatter(rank, extents, DType::f32); });
    };
    std::vector<std::int64_t> one(count, 0), one_longer(count, size / 2 / ranks), every_fourth(count, 0);
    one[count / 3] = size;
    one_longer[count / 3] += size / 2;
    for (std::size_t rank = 0; rank < count; rank += 4) every_fourth[rank] = 4 * size / ranks;
    const std::int64_t equal = most_for(std::vector<std::int64_t>(count, size / ranks));
    EXPECT_LE(most_for(one), equal);
    EXPECT_LE(most_for(one_longer), equal + equal / 16) << "one more round";
    EXPECT_LE(most_for(every_fourth), equal);
  }
}

TEST(ReductionLevels, RoundsOfAReduceScatterHaveABoundedSize) {
  for (const int ranks : {2, 8, 11, 12, 16, 86, 4096}) {
    std::vector<std::int64_t> extents(static_cast<std::size_t>(ranks), 1000);
    extents[1] = 20'000'000;
    extents.back() = 3'000'000;
    const RoundSizes sizes(extents, 4);
    ASSERT_EQ(sizes.longest(), extents[1]);
    std::int64_t first = 0;
    while (first < sizes.longest()) {
      const std::int64_t most = sizes.most(first);
      ASSERT_GT(most, 0);
      std::int64_t round = 0;
      for (const std::int64_t extent : extents) round += std::clamp<std::int64_t>(extent - first, 0, most);
      ASSERT_LE(round, (1 << 20) / 4) << ranks;
      first += most;
    }
  }
}

}  // namespace
}  // namespace lyceum
