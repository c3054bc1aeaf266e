// Operations that send data along a tree or level by level, in groups of more than 8 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/all_gather.h"
#include "parallel/comm/all_reduce.h"
#include "parallel/comm/process_group.h"
#include "parallel/comm/reduce_scatter.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

class LargeGroups : public testing::Test {
 protected:
  /// Calls each(group) on the members of groups with the first 9, 10, … ranks.
  template <class Each>
  void for_groups(const Each& each) {
    for (int ranks = 9; ranks <= world.size(); ++ranks) {
      const ProcessGroup group = world.split([&](int r) { return r < ranks ? 0 : 1; }, std::to_string(ranks));
      if (world.rank() < ranks) each(group);
    }
  }
  ProcessGroup world = test_world();
};

float contribution(int rank, std::size_t i) {
  return static_cast<float>((i + 1) * 2654435761U % 20011 * static_cast<std::size_t>(rank + 3) % 9973) / 7.0f - 600;
}

/// Returns the radices of the levels of a reduction, the lowest first.
std::vector<int> radices_of(int ranks) {
  static const std::map<int, std::vector<int>> radices{{9, {3, 3}}, {10, {2, 5}}, {11, {11}},   {12, {4, 3}},
                                                       {13, {13}},  {14, {2, 7}}, {15, {3, 5}}, {16, {4, 4}}};
  return radices.at(ranks);
}

/// Returns x_first + … over the product of `radices` ranks: the sums of as many blocks of ranks as the last radix says.
template <class X>
float sum_of_blocks(int first, std::span<const int> radices, const X& x) {
  if (radices.empty()) return x(first);
  const std::span<const int> lower = radices.first(radices.size() - 1);
  const int block = std::accumulate(lower.begin(), lower.end(), 1, std::multiplies<>());
  float sum = sum_of_blocks(first, lower, x);
  for (int b = 1; b < radices.back(); ++b) sum += sum_of_blocks(first + b * block, lower, x);
  return sum;
}

TEST_F(LargeGroups, AllReduceGivesTheBitsOfTheSumInTheOrderOfLevels) {
  // Vectors of up to 16384 floats (64 KiB) are sent along a tree, longer ones in chunks of 262144.
  for (const std::size_t count : {1U, 3U, 1000U, 16384U, 16385U, 600011U}) {
    for_groups([&](const ProcessGroup& group) {
      const std::vector<int> radices = radices_of(group.size());
      std::vector<float> values(count), expected(count), largest(count), expected_largest(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = largest[i] = contribution(group.rank(), i);
        expected[i] = sum_of_blocks(0, radices, [&](int r) { return contribution(r, i); });
        expected_largest[i] = contribution(0, i);
        for (int r = 1; r < group.size(); ++r) expected_largest[i] = std::max(expected_largest[i], contribution(r, i));
      }
      const std::int64_t before = group.sent_messages();
      group.all_reduce(values);
      EXPECT_EQ(std::memcmp(values.data(), expected.data(), count * sizeof(float)), 0) << count << group.name();
      EXPECT_EQ(group.sent_messages() - before,
                messages_of_all_reduce(group.rank(), group.size(), std::ssize(values), DType::f32));
      group.all_reduce(largest, Reduction::max);
      EXPECT_EQ(largest, expected_largest) << count << group.name();
    });
  }
}

TEST_F(LargeGroups, SumsOfBfloat16AreRoundedOnce) {
  const CpuStream stream(1);
  for (const std::int64_t count : {7, 40001, 530003}) {  // chunks are of 524288 values
    for_groups([&](const ProcessGroup& group) {
      const Tensor values = Tensor::empty(stream, DType::bf16, {count});
      for (std::size_t i = 0; i < values.span<bfloat16>().size(); ++i) {
        values.span<bfloat16>()[i] = bfloat16(contribution(group.rank(), i));
      }
      group.all_reduce_async(values).wait();
      const std::vector<int> radices = radices_of(group.size());
      for (std::size_t i = 0; i < values.span<bfloat16>().size(); ++i) {
        const float sum =
            sum_of_blocks(0, radices, [&](int r) { return static_cast<float>(bfloat16(contribution(r, i))); });
        ASSERT_EQ(values.span<bfloat16>()[i].bits, bfloat16(sum).bits) << i << " of " << count << group.name();
      }
    });
  }
}

/// Returns partitions of `count` elements: an even one; all on one rank; increasing with the rank, with none on the
/// first.
std::vector<std::vector<std::int64_t>> partitions(std::int64_t count, int ranks) {
  std::vector<std::vector<std::int64_t>> all(3, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 0));
  for (int r = 0; r < ranks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    all[0][at] = count * (r + 1) / ranks - count * r / ranks;
    all[1][at] = r == ranks / 2 ? count : 0;
    all[2][at] = count * r / (ranks * ranks);
  }
  return all;
}

TEST_F(LargeGroups, ReduceScatterGivesTheBitsOfTheSlicesOfAllReduce) {
  const CpuStream stream(1);
  const auto check = [&](const ProcessGroup& group, DType type, const std::vector<std::int64_t>& extents) {
    const auto own = static_cast<std::size_t>(group.rank());
    const auto begin = extents.begin() + group.rank();
    const std::int64_t size = std::accumulate(extents.begin(), extents.end(), std::int64_t{0}),
                       first = std::accumulate(extents.begin(), begin, std::int64_t{0});
    const Tensor values = Tensor::empty(stream, type, {size}), sums = Tensor::empty(stream, type, {size});
    for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
      if (type == DType::f32) {
        values.span<float>()[i] = sums.span<float>()[i] = contribution(group.rank(), i);
      } else {
        values.span<bfloat16>()[i] = sums.span<bfloat16>()[i] = bfloat16(contribution(group.rank(), i));
      }
    }
    group.all_reduce_async(sums).wait();
    const Tensor part = Tensor::empty(stream, type, {extents[own]}), expected = sums.view(first, {extents[own]}),
                 inside = values.view(first, {extents[own]});
    const std::int64_t before = group.sent_messages();
    group.reduce_scatter(values, part, extents);
    if (size > 0) {
      EXPECT_EQ(group.sent_messages() - before, messages_of_reduce_scatter(group.rank(), extents, type));
    }
    group.reduce_scatter(values, inside, extents);
    if (part.size() == 0) return;
    EXPECT_EQ(std::memcmp(part.raw(), expected.raw(), part.bytes()), 0) << size << group.name();
    EXPECT_EQ(std::memcmp(inside.raw(), expected.raw(), part.bytes()), 0) << size << group.name();
  };
  for_groups([&](const ProcessGroup& group) {
    for (const DType type : {DType::f32, DType::bf16}) {
      // Rounds are of up to 262144 values of f32, or 524288 of bf16.
      for (const std::int64_t count : {1, 1000, type == DType::f32 ? 300007 : 530003}) {
        for (const std::vector<std::int64_t>& extents : partitions(count, group.size())) check(group, type, extents);
      }
    }
  });
}

TEST_F(LargeGroups, AllGatherOfTensorsFromOutsideAndInPlace) {
  const CpuStream stream(1);
  for (const std::int64_t count : {0, 1, 1000, 300007}) {
    for_groups([&](const ProcessGroup& group) {
      for (const std::vector<std::int64_t>& extents : partitions(count, group.size())) {
        const std::int64_t size = std::accumulate(extents.begin(), extents.end(), std::int64_t{0}),
                           first = std::accumulate(extents.begin(), extents.begin() + group.rank(), std::int64_t{0});
        const std::int64_t own = extents[static_cast<std::size_t>(group.rank())];
        for (const bool in_place : {false, true}) {
          const Tensor values = Tensor::zeros(stream, DType::f32, {size});
          const Tensor part = in_place ? values.view(first, {own}) : Tensor::empty(stream, DType::f32, {own});
          for (std::int64_t i = 0; i < own; ++i) {
            part.span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(first + i + 1);
          }
          const std::int64_t before = group.sent_messages();
          group.all_gather(part, values, extents);
          EXPECT_EQ(group.sent_messages() - before, messages_of_all_gather(group.rank(), extents));
          for (std::int64_t i = 0; i < size; ++i) {
            ASSERT_EQ(values.span<float>()[static_cast<std::size_t>(i)], static_cast<float>(i + 1)) << group.name();
          }
        }
      }
    });
  }
}

TEST_F(LargeGroups, SeveralReductionsMayBeInFlight) {
  const CpuStream stream(1);
  for (const std::int64_t size : {100, 200003}) {  // along a tree, and in two chunks
    std::vector<Tensor> values;
    std::vector<Pending> pending;
    for (int i = 0; i < 5; ++i) {
      values.push_back(Tensor::zeros(stream, DType::i64, {size}));
      values.back().data<std::int64_t>()[99] = world.rank() + i;
      pending.push_back(world.all_reduce_async(values.back()));
    }
    for (int i = 4; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      pending[at].wait();
      EXPECT_EQ(values[at].data<std::int64_t>()[99], world.size() * (world.size() - 1) / 2 + i * world.size());
    }
  }
}

TEST_F(LargeGroups, ANanOfAnyRankReachesAll) {
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
    std::vector<double> values{1.0 * world.rank(), 2};
    if (world.rank() == world.size() - 2) values[1] = std::numeric_limits<double>::quiet_NaN();
    world.all_reduce(values, reduction);
    EXPECT_FALSE(std::isnan(values[0]));
    EXPECT_TRUE(std::isnan(values[1]));
  }
}

TEST_F(LargeGroups, TextsAndNumbersArriveInRankOrder) {
  const auto text_of = [](int r) {
    return std::string(static_cast<std::size_t>(r * r % 7), static_cast<char>('a' + r));
  };
  for_groups([&](const ProcessGroup& group) {
    std::vector<std::string> expected;
    std::vector<std::int64_t> expected_numbers;
    for (int r = 0; r < group.size(); ++r) {
      expected.push_back(text_of(r));
      expected_numbers.insert(expected_numbers.end(), {10 * r, 10 * r + 1});
    }
    EXPECT_EQ(group.all_gather(text_of(group.rank())), expected);
    for (int root = 0; root < group.size(); ++root) {
      const std::vector<std::string> texts = group.gather(text_of(group.rank()), root);
      EXPECT_EQ(texts, group.rank() == root ? expected : std::vector<std::string>());
    }
    const std::vector<std::int64_t> own{10 * group.rank(), 10 * group.rank() + 1};
    std::vector<std::int64_t> all(expected_numbers.size());
    group.all_gather(own, all);
    EXPECT_EQ(all, expected_numbers);
  });
}

/// Ranks wait for those next to them in a tree or a level, but the message names the rank that they all wait for.
TEST_F(LargeGroups, ARankThatStaysAwayIsNamed) {
  if (world.size() < 9) GTEST_SKIP() << "needs nine ranks";
  constexpr int absent = 5;
  for (const std::size_t values : {256, 300000}) {  // along a tree, and level by level
    const ProcessGroup hasty = test_world();
    hasty.barrier();
    std::string report;
    world.barrier();
    hasty.set_timeout(2);
    try {
      std::vector<float> summed(values);
      if (world.rank() != absent) hasty.all_reduce(summed);
    } catch (const Error& error) {
      report = error.what();
    }
    const std::vector<std::string> reports = world.all_gather(report);
    const auto with = [&](const std::string& part) {
      return std::ranges::count_if(reports, [&](const auto& each) { return each.find(part) != each.npos; });
    };
    EXPECT_EQ(with("rank 5 on "), 1) << testing::PrintToString(reports);
    EXPECT_EQ(with(" has not entered all_reduce #"), 1);
    EXPECT_EQ(with("waited 2 s"), world.size() - 1) << "all others end";
    EXPECT_TRUE(reports[absent].empty());
  }
}

}  // namespace
}  // namespace lyceum
