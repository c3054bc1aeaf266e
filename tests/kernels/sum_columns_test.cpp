#include "kernels/sum_columns.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

TEST(SumColumns, AddsToWhatIsThere) {
  for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {200, 70}}) {
    const auto x = Grid<double>::random(rows, cols, "x", 1);
    std::vector<double> sums(static_cast<std::size_t>(cols), 5);
    launch_on(1, SumColumns{x.matrix(), sums});
    for (std::int64_t c = 0; c < cols; ++c) {
      double expected = 5;
      for (std::int64_t r = 0; r < rows; ++r) expected += x.at(r, c);
      EXPECT_NEAR(sums[static_cast<std::size_t>(c)], expected, 1e-10);
    }
  }
}

TEST(SumCounts, ReplacesWhatIsThere) {
  for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {8, 300}}) {
    auto counts = Grid<std::int64_t>::zeros(rows, cols, 1);
    std::vector<std::int64_t> sums(static_cast<std::size_t>(cols), 5), expected(static_cast<std::size_t>(cols), 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        counts(r, c) = (std::int64_t{1} << 40) + r * 1000 + c;
        expected[static_cast<std::size_t>(c)] += counts(r, c);
      }
    }
    launch_on(1, SumCounts{counts.matrix(), sums});
    EXPECT_EQ(sums, expected);
  }
}

}  // namespace
}  // namespace lyceum
