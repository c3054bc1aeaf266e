#include "kernels/embedding.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

std::vector<std::int32_t> random_tokens(std::int64_t count, std::uint64_t vocab) {
  std::vector<std::int32_t> tokens;
  const Philox random(2, "tokens");
  for (std::int64_t t = 0; t < count; ++t) {
    tokens.push_back(static_cast<std::int32_t>(random.below(vocab, static_cast<std::uint64_t>(t))));
  }
  return tokens;
}

template <class T>
class EmbeddingTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(EmbeddingTest, Types);

TYPED_TEST(EmbeddingTest, CopiesRowsAndSumsGradientsInOrder) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const auto& [count, hidden] : {std::pair{1, 1}, {0, 7}, {7, 33}, {341, 129}}) {
    const std::vector<std::int32_t> tokens = random_tokens(count, 11);
    const auto table = Grid<T>::random(11, hidden, "table", 3);
    Grid<T> y(count, hidden, 2);
    launch_on(2, EmbeddingForward<T>{tokens, table.matrix(), y.matrix()});
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t c = 0; c < hidden; ++c) ASSERT_EQ(y.at(t, c), table.at(tokens[static_cast<std::size_t>(t)], c));
    }
    EXPECT_TRUE(y.gaps_untouched());

    const auto dy = Grid<T>::random(count, hidden, "dy", 1);
    const auto start = Grid<A>::random(11, hidden, "start", 2);
    auto expected = start;
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        expected(tokens[static_cast<std::size_t>(t)], c) += static_cast<A>(dy.at(t, c));
      }
    }
    for (const int threads : {1, 2, 3}) {
      auto d_table = start;
      launch_on(threads, EmbeddingWeightGrad<T>{tokens, dy.matrix(), d_table.matrix()});
      EXPECT_TRUE(d_table.same_bits(expected));
    }
  }
}

TYPED_TEST(EmbeddingTest, SumsTheGradientsOfAFrequentWordInOrder) {
  using T = TypeParam;
  using A = Accumulator<T>;
  constexpr std::int64_t count = 1201, hidden = 9;
  std::vector<std::int32_t> tokens = random_tokens(count, 5);
  for (std::size_t t = 0; t < tokens.size(); t += 2) tokens[t] = 3;
  const auto dy = Grid<T>::random(count, hidden, "dy");
  auto expected = Grid<A>::zeros(5, hidden), d_table = expected;
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < hidden; ++c) {
      expected(tokens[static_cast<std::size_t>(t)], c) += static_cast<A>(dy.at(t, c));
    }
  }
  launch_on(2, EmbeddingWeightGrad<T>{tokens, dy.matrix(), d_table.matrix()});
  EXPECT_TRUE(d_table.same_bits(expected));
}

TYPED_TEST(EmbeddingTest, PartsOfAVocabularyAddUpToTheWhole) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const std::vector<std::int32_t> tokens = random_tokens(50, 11);
  const auto table = Grid<T>::random(11, 7, "table", 2);
  const auto dy = Grid<T>::random(50, 7, "dy");
  Grid<T> whole(50, 7);
  Grid<A> d_whole = Grid<A>::zeros(11, 7), d_parts = Grid<A>::zeros(11, 7);
  launch_on(1, EmbeddingForward<T>{tokens, table.matrix(), whole.matrix()});
  launch_on(1, EmbeddingWeightGrad<T>{tokens, dy.matrix(), d_whole.matrix()});
  std::vector<double> sum(50 * 7, 0.0);
  for (const auto& [first, count] : {std::pair{0, 4}, {4, 0}, {4, 1}, {5, 6}}) {
    Grid<T> y(50, 7, 1);
    launch_on(2, EmbeddingForward<T>{.tokens = tokens,
                                     .table = table.matrix().rows_from(first, count),
                                     .y = y.matrix(),
                                     .first = first,
                                     .vocab = 11});
    EXPECT_TRUE(y.gaps_untouched());
    for (std::int64_t t = 0; t < 50; ++t) {
      const std::int32_t token = tokens[static_cast<std::size_t>(t)];
      for (std::int64_t c = 0; c < 7; ++c) {
        ASSERT_EQ(y.at(t, c), token >= first && token < first + count ? table.at(token, c) : 0);
        sum[static_cast<std::size_t>(t * 7 + c)] += y.at(t, c);
      }
    }
    launch_on(2, EmbeddingWeightGrad<T>{.tokens = tokens,
                                        .dy = dy.matrix(),
                                        .d_table = d_parts.matrix().rows_from(first, count),
                                        .first = first,
                                        .vocab = 11});
  }
  EXPECT_EQ(sum, whole.flat());
  EXPECT_TRUE(d_parts.same_bits(d_whole));
}

TYPED_TEST(EmbeddingTest, NanShows) {
  using T = TypeParam;
  const std::vector<std::int32_t> tokens{2, 0};
  auto table = Grid<T>::random(3, 4, "table");
  table(2, 1) = poison<T>();
  Grid<T> y(2, 4);
  launch_on(1, EmbeddingForward<T>{tokens, table.matrix(), y.matrix()});
  EXPECT_TRUE(is_nan(y.at(0, 1)));
  auto d_table = Grid<Accumulator<T>>::zeros(3, 4);
  launch_on(1, EmbeddingWeightGrad<T>{tokens, y.matrix(), d_table.matrix()});
  EXPECT_TRUE(is_nan(d_table.at(2, 1)));
  EXPECT_FALSE(is_nan(d_table.at(0, 1)));
}

TEST(Embedding, RefusesTokensOutsideOfTheVocabulary) {
  const auto table = Grid<float>::random(3, 4, "table");
  Grid<float> y(2, 4), d_table = Grid<float>::zeros(3, 4);
  for (const std::int32_t bad : {-1, 3}) {
    const std::vector<std::int32_t> tokens{0, bad};
    EXPECT_THROW(launch_on(1, EmbeddingForward<float>{tokens, table.matrix(), y.matrix()}), Error);
    EXPECT_THROW(launch_on(1, EmbeddingWeightGrad<float>{tokens, y.matrix(), d_table.matrix()}), Error);
  }
  const std::vector<std::int32_t> beyond{0, 5};  // the table has words 2 to 4 of a vocabulary of 5
  EXPECT_THROW(launch_on(1, EmbeddingForward<float>{beyond, table.matrix(), y.matrix(), 2, 5}), Error);
  EXPECT_THROW(launch_on(1, EmbeddingWeightGrad<float>{beyond, y.matrix(), d_table.matrix(), 2, 5}), Error);
}

}  // namespace
}  // namespace lyceum
