#include "io/data/loader/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.h"

namespace lyceum {
namespace {

TEST(PackingOf, FillsSequencesWithWholeDocuments) {
  // The documents have 4, 2, 9 (cut into 5 and 4), 0, 1 and 3 predictions.
  const std::vector<std::int64_t> begins{0, 5, 8, 18, 19, 21, 25};
  const Packing packing(begins, 5);
  EXPECT_EQ(packing.documents(), 5);
  EXPECT_EQ(packing.cut_documents(), 1);
  EXPECT_EQ(packing.predicted_tokens(), 19);
  const auto spans = [&](std::int64_t sequence) {
    const auto of = packing.spans_of(sequence);
    return std::vector<TokenSpan>(of.begin(), of.end());
  };
  ASSERT_EQ(packing.sequences(), 4);
  EXPECT_EQ(spans(0), (std::vector<TokenSpan>{{0, 4}, {19, 1}}));
  EXPECT_EQ(spans(1), (std::vector<TokenSpan>{{5, 2}, {21, 3}}));
  EXPECT_EQ(spans(2), (std::vector<TokenSpan>{{8, 5}}));
  EXPECT_EQ(spans(3), (std::vector<TokenSpan>{{13, 4}}));
}

TEST(PackingOf, ThrowsNothingAwayAndWastesLittle) {
  const Philox random(7, "lengths");
  std::vector<std::int64_t> begins{0};
  for (std::uint64_t d = 0; d < 5000; ++d) {
    begins.push_back(begins.back() + 1 + static_cast<std::int64_t>(random.below(700, d)));
  }
  const Packing packing(begins, 512);
  std::vector<TokenSpan> spans;
  for (std::int64_t s = 0; s < packing.sequences(); ++s) {
    std::int64_t used = 0;
    for (const TokenSpan& span : packing.spans_of(s)) used += span.inputs, spans.push_back(span);
    EXPECT_TRUE(used > 0 && used <= 512);
  }
  std::ranges::sort(spans, {}, &TokenSpan::begin);
  std::int64_t at = 0;
  for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
    for (std::int64_t token = begins[d]; token + 1 < begins[d + 1];) {
      const TokenSpan& span = spans.at(static_cast<std::size_t>(at++));
      EXPECT_EQ(span.begin, token);
      token += span.inputs;
      EXPECT_LE(token, begins[d + 1] - 1);
    }
  }
  EXPECT_EQ(at, std::ssize(spans));
  EXPECT_LT(packing.sequences() * 512, packing.predicted_tokens() * 51 / 50);
}

}  // namespace
}  // namespace lyceum
