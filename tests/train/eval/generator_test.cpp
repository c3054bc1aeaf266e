#include "train/eval/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace lyceum {
namespace {

/// Returns all tokens that 1000 evenly spaced numbers in [0, 1) draw.
std::set<std::int32_t> drawn(const std::vector<float>& logits, const Sampling& sampling) {
  std::set<std::int32_t> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(draw_token(logits, sampling, i / 1000.0));
  return tokens;
}

TEST(Generator, DrawsFromTheMostLikelyThatTogetherHaveAProbability) {
  std::vector<float> logits;  // for the probabilities 0.1, 0.4, 0.2, 0.3
  for (const double p : {0.1, 0.4, 0.2, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  using Tokens = std::set<std::int32_t>;
  const auto with = [](std::int64_t top_k, double top_p, double temperature = 1) {
    return Sampling{.temperature = temperature, .top_k = top_k, .top_p = top_p};
  };
  EXPECT_EQ(drawn(logits, with(0, 1)), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(drawn(logits, with(0, 0.95)), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(drawn(logits, with(0, 0.85)), (Tokens{1, 2, 3}));
  EXPECT_EQ(drawn(logits, with(0, 0.6)), (Tokens{1, 3}));
  EXPECT_EQ(drawn(logits, with(0, 0.35)), Tokens{1});
  EXPECT_EQ(drawn(logits, with(0, 1e-9)), Tokens{1});
  EXPECT_EQ(drawn(logits, with(2, 0.6)), (Tokens{1, 3}));  // these two have probabilities 4/7 and 3/7
  EXPECT_EQ(drawn(logits, with(2, 0.55)), Tokens{1});
  EXPECT_EQ(drawn(logits, with(0, 0.9, 0.01)), Tokens{1});  // a low temperature raises the largest probability
  EXPECT_EQ(drawn(logits, with(0, 0.5, 0)), Tokens{1});
}

}  // namespace
}  // namespace lyceum
