#include <gtest/gtest.h>

#include <vector>

#include "core/copy.h"
#include "core/random.h"
#include "parallel/expert/capacity.h"
#include "support/tested_groups.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// Returns two different choices out of 5 experts for each token; experts 0 to 2 are frequent, and some second choices
/// are -1.
std::vector<std::int32_t> two_of_five(std::int64_t tokens) {
  std::vector<std::int32_t> index;
  const Philox random(2, "capacity");
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<std::int32_t>(random.below(3, static_cast<std::uint64_t>(t)));
    index.push_back(first);
    index.push_back(t % 4 == 3 ? -1 : (first + 1) % 5);
  }
  return index;
}

struct Taken {
  std::vector<std::int32_t> index;
  std::vector<std::int64_t> dropped;
};

Taken taken_of(const Stream& stream, const TokenLayout& layout, double factor, const std::vector<std::int32_t>& index) {
  const Tensor all = tensor_of(stream, {layout.tokens(), 2}, index),
               dropped = Tensor::zeros(stream, DType::i64, {2, 5});
  const Range own = layout.own();
  const Capacity capacity{.factor = factor, .experts = 5, .dropped = dropped};
  const Tensor kept = within_capacity(stream, layout, capacity, all.slice(own.first, own.count));
  return {values_of<std::int32_t>(stream, kept), values_of<std::int64_t>(stream, dropped)};
}

/// The ranges of tokens may end within a sequence, and some ranks have no tokens.
TEST(CapacityOnRanks, SharedTokensAreDroppedAsOneRankDoes) {
  const ProcessGroup group = test_world();
  const Stream stream = CpuStream(1);
  for (const std::int64_t seq_len : {7, 2}) {
    const std::int64_t tokens = 3 * seq_len;
    const std::vector<std::int32_t> index = two_of_five(tokens);
    for (const double factor : {0.5, 1.0, 100.0}) {
      const Taken whole = taken_of(stream, {tokens, seq_len}, factor, index);
      const TokenLayout layout(group, seq_len == 7, tokens, seq_len);
      Taken run = taken_of(stream, layout, factor, index);
      const auto begin = whole.index.begin() + 2 * layout.own().first;
      EXPECT_EQ(run.index, std::vector<std::int32_t>(begin, begin + 2 * layout.own().count)) << factor;
      group.all_reduce(std::span(run.dropped));
      EXPECT_EQ(run.dropped, whole.dropped) << factor;
      EXPECT_EQ(whole.index == index, factor == 100) << "a limit that no expert reaches";
    }
  }
}

}  // namespace
}  // namespace lyceum
