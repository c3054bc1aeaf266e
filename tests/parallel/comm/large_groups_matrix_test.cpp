// Operations that send data along a tree, in groups of more than 8 ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "parallel/comm/process_group.h"
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

TEST_F(LargeGroups, AllReduceGivesTheBitsOfTheSumInRankOrder) {
  // Vectors of up to 16384 floats (1 MiB for 16 ranks together) are sent along a tree.
  for (const std::size_t count : {1U, 3U, 1000U, 16384U, 16385U}) {
    for_groups([&](const ProcessGroup& group) {
      std::vector<float> values(count), expected(count), largest(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = largest[i] = contribution(group.rank(), i);
        expected[i] = contribution(0, i);
        for (int r = 1; r < group.size(); ++r) expected[i] += contribution(r, i);
      }
      group.all_reduce(values);
      EXPECT_EQ(std::memcmp(values.data(), expected.data(), count * sizeof(float)), 0) << count << group.name();
      group.all_reduce(largest, Reduction::max);
      for (std::size_t i = 0; i < count; ++i) {
        for (int r = 0; r < group.size(); ++r) ASSERT_GE(largest[i], contribution(r, i));
      }
    });
  }
}

TEST_F(LargeGroups, SeveralReductionsMayBeInFlight) {
  const CpuStream stream(1);
  std::vector<Tensor> values;
  std::vector<Pending> pending;
  for (int i = 0; i < 5; ++i) {
    values.push_back(Tensor::zeros(stream, DType::i64, {100}));
    values.back().data<std::int64_t>()[99] = world.rank() + i;
    pending.push_back(world.all_reduce_async(values.back()));
  }
  for (int i = 4; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    pending[at].wait();
    EXPECT_EQ(values[at].data<std::int64_t>()[99], world.size() * (world.size() - 1) / 2 + i * world.size());
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

}  // namespace
}  // namespace lyceum
