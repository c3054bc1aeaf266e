#include "kernels/hash_tokens.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class A>
class HashTokensTest : public testing::Test {};
using ScoreTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(HashTokensTest, ScoreTypes);

/// The expert is splitmix64(token + layer · 2³²) mod experts.
TYPED_TEST(HashTokensTest, SendsATokenAlwaysToTheSameExpert) {
  using A = TypeParam;
  EXPECT_EQ(hashed_expert(0, 0, 1000), 0xe220a8397b1dcdafull % 1000);
  EXPECT_EQ(hashed_expert(5, 3, 7), splitmix64(5 + (std::uint64_t{3} << 32)) % 7);
  for (const std::int64_t tokens : {0, 1, 300}) {
    const std::int64_t experts = 9, layer = 2;
    std::vector<std::int32_t> words, index(static_cast<std::size_t>(tokens), -1);
    for (std::int64_t t = 0; t < tokens; ++t) words.push_back(static_cast<std::int32_t>(t * t % 37));
    std::vector<A> gates(index.size(), poison<A>());
    std::vector<std::int64_t> counts(9, 100), expected_counts = counts;
    std::vector<double> probability(9, 0.5), expected = probability;
    launch_on(1, HashTokens<A>{words, layer, experts, index, gates, counts, probability});
    for (std::size_t t = 0; t < index.size(); ++t) {
      const auto expert = static_cast<std::size_t>(splitmix64(words[t] + (std::uint64_t{2} << 32)) % 9);
      EXPECT_EQ(index[t], static_cast<std::int32_t>(expert));
      EXPECT_EQ(gates[t], A{1});
      ++expected_counts[expert];
      ++expected[expert];
    }
    EXPECT_EQ(counts, expected_counts);
    EXPECT_EQ(probability, expected);
    launch_on(1, HashTokens<A>{words, layer, experts, index, gates, {}, {}});
  }
  std::vector<std::int32_t> words(2), index(1);
  std::vector<A> gates(2);
  EXPECT_THROW(launch_on(1, HashTokens<A>{words, 0, 3, index, gates, {}, {}}), Error);
}

}  // namespace
}  // namespace lyceum
