#include "kernels/router_chunks.h"

#include <gtest/gtest.h>

#include <utility>

namespace lyceum {
namespace {

/// Each token is in exactly one chunk, of its sequence, and no chunk has more than RouterChunks::rows tokens.
TEST(RouterChunks, CoverTheTokensOnce) {
  for (const std::int64_t seq_len : {1, 7, 63, 64, 65, 200}) {
    for (const auto& [first, tokens] : {std::pair<std::int64_t, std::int64_t>{0, 600}, {5, 0}, {64, 100}, {199, 401}}) {
      const RouterChunks chunks{tokens, seq_len, first, (600 + seq_len - 1) / seq_len};
      std::int64_t next = 0;
      for (std::int64_t c = 0; c < chunks.count(); ++c) {
        ASSERT_LE(chunks.end(c) - chunks.begin(c), RouterChunks::rows);
        if (chunks.begin(c) == chunks.end(c)) continue;
        ASSERT_EQ(chunks.begin(c), next);
        next = chunks.end(c);
        EXPECT_EQ((first + chunks.begin(c)) / seq_len, c / chunks.of_sequence());
        EXPECT_EQ((first + chunks.end(c) - 1) / seq_len, c / chunks.of_sequence());
      }
      EXPECT_EQ(next, tokens);
    }
  }
}

}  // namespace
}  // namespace lyceum
