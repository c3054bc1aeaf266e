#include "kernels/shift_tokens.h"

#include "kernels/cross_entropy.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Shifted {
  Tokens inputs, targets;
};

Shifted shifted(const Tokens& inputs, const Tokens& targets, const Tokens& starts, std::int64_t seq_len,
                std::int64_t shift) {
  Shifted result{Tokens(inputs.size(), -7), Tokens(inputs.size(), -7)};
  launch_on(2, ShiftTokens{inputs, targets, starts, seq_len, shift, result.inputs, result.targets});
  return result;
}

TEST(ShiftTokens, EndsWithTheSequence) {
  const Tokens inputs{1, 2, 3, 4, 5, 6}, targets{2, 3, 9, 5, no_target, 8};
  const Shifted one = shifted(inputs, targets, {}, 3, 1);
  EXPECT_EQ(one.inputs, (Tokens{2, 3, 0, 5, 6, 0}));
  EXPECT_EQ(one.targets, (Tokens{3, 9, no_target, no_target, 8, no_target}));
  const Shifted two = shifted(inputs, targets, {}, 3, 2);
  EXPECT_EQ(two.inputs, (Tokens{3, 0, 0, 6, 0, 0}));
  EXPECT_EQ(two.targets, (Tokens{9, no_target, no_target, 8, no_target, no_target}));
  const Shifted none = shifted(inputs, targets, {}, 3, 0);
  EXPECT_EQ(none.inputs, inputs);
  EXPECT_EQ(none.targets, targets);
  for (const std::int64_t shift : {3, 100}) {
    EXPECT_EQ(shifted(inputs, targets, {}, 3, shift).inputs, Tokens(6, 0));
    EXPECT_EQ(shifted(inputs, targets, {}, 3, shift).targets, Tokens(6, no_target));
  }
}

TEST(ShiftTokens, EndsWithTheDocument) {
  // The first sequence has documents of 2, 1 and 2 tokens, the second has one document.
  const Tokens inputs{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, targets{2, 20, 30, 5, 50, 7, 8, 9, 10, 100},
      starts{0, 0, 2, 3, 3, 0, 0, 0, 0, 0};
  const Shifted one = shifted(inputs, targets, starts, 5, 1);
  EXPECT_EQ(one.inputs, (Tokens{2, 0, 0, 5, 0, 7, 8, 9, 10, 0}));
  EXPECT_EQ(one.targets, (Tokens{20, no_target, no_target, 50, no_target, 8, 9, 10, 100, no_target}));
  const Shifted two = shifted(inputs, targets, starts, 5, 2);
  EXPECT_EQ(two.inputs, (Tokens{0, 0, 0, 0, 0, 8, 9, 10, 0, 0}));
  EXPECT_EQ(two.targets, (Tokens{-1, -1, -1, -1, -1, 9, 10, 100, -1, -1}));
}

TEST(ShiftTokens, OfManyTokensAndOfNone) {
  constexpr std::int64_t seq_len = 70001;
  Tokens inputs(3 * seq_len), targets(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<std::int32_t>(i % 997);
    targets[i] = static_cast<std::int32_t>((i + 1) % 997);
  }
  const Shifted all = shifted(inputs, targets, {}, seq_len, 5);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool inside = i % seq_len + 5 < seq_len;
    ASSERT_EQ(all.inputs[i], inside ? inputs[i + 5] : 0) << i;
    ASSERT_EQ(all.targets[i], inside ? targets[i + 5] : no_target) << i;
  }
  EXPECT_TRUE(shifted({}, {}, {}, 4, 1).inputs.empty());
}

TEST(ShiftTokens, RefusesOperandsThatDoNotFit) {
  const Tokens four(4), three(3);
  Tokens a(4), b(4), c(3);
  EXPECT_THROW(launch_on(1, ShiftTokens{four, three, {}, 4, 1, a, b}), Error);
  EXPECT_THROW(launch_on(1, ShiftTokens{four, four, three, 4, 1, a, b}), Error);
  EXPECT_THROW(launch_on(1, ShiftTokens{four, four, {}, 4, 1, a, c}), Error);
  EXPECT_THROW(launch_on(1, ShiftTokens{four, four, {}, 3, 1, a, b}), Error);
  EXPECT_THROW(launch_on(1, ShiftTokens{four, four, {}, 4, -1, a, b}), Error);
}

}  // namespace
}  // namespace lyceum
