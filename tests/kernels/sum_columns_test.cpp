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

}  // namespace
}  // namespace lyceum
