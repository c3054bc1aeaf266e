#include "kernels/padding.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class T>
class PaddingTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(PaddingTest, Types);

TYPED_TEST(PaddingTest, ClearsWhatIsBetweenTheSegmentsAndNothingElse) {
  using T = TypeParam;
  for (const std::vector<std::int64_t>& rows : std::vector<std::vector<std::int64_t>>{{}, {0}, {32}, {33, 0, 1, 64}}) {
    for (const std::int64_t cols : {0, 1, 40, 341}) {
      const SegmentTable table(CpuStream(1), rows);
      const Segments segments = table.view();
      auto x = Grid<T>::random(table.total(), cols, "x", 3);
      const auto before = x;
      launch_on(2, ClearPadding<T>{segments, x.matrix()});
      for (std::int64_t e = 0; e < segments.count(); ++e) {
        const auto s = static_cast<std::size_t>(e);
        for (std::int64_t r = segments.begin[s]; r < segments.begin[s + 1]; ++r) {
          const bool padding = r >= segments.begin[s] + segments.rows[s];
          for (std::int64_t c = 0; c < cols; ++c) ASSERT_EQ(x.at(r, c), padding ? 0 : before.at(r, c));
        }
      }
      EXPECT_TRUE(x.gaps_untouched());
    }
  }
}

}  // namespace
}  // namespace lyceum
