#include "kernels/flat_blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace lyceum {
namespace {

struct Row {
  std::int64_t first_block;
};

/// Tensors with 0 to 3 blocks, with empty ones at both ends and several in a row.
TEST(BlockWalk, SeveralBlocksAtOnceAreManySteps) {
  std::vector<Row> rows;
  std::vector<std::size_t> row_of;  // by block
  for (const std::int64_t blocks : {0, 0, 1, 3, 0, 0, 0, 2, 1, 1, 0, 3, 0, 1, 0}) {
    rows.push_back({std::ssize(row_of)});
    row_of.insert(row_of.end(), static_cast<std::size_t>(blocks), rows.size() - 1);
  }
  const auto count = std::ssize(row_of);
  for (std::int64_t first = 0; first < count; ++first) {
    for (std::int64_t step = 1; step <= count; ++step) {
      BlockWalk<Row> walk(rows, first);
      for (std::int64_t block = first; block < count; block += step, walk.next(step)) {
        const std::size_t row = row_of[static_cast<std::size_t>(block)];
        ASSERT_EQ(walk.row(), row) << "block " << block << " from " << first << " in steps of " << step;
        ASSERT_EQ(&walk.tensor() - rows.data(), static_cast<std::ptrdiff_t>(row));
        ASSERT_EQ(walk.block(), block - rows[row].first_block);
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
