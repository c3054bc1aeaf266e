// Tests the index maps of the CUDA attention kernels for all indices.
#include "kernels/cuda/attention_schedule.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/tensor_core.cuh"

namespace lyceum::cuda {
namespace {

TEST(CudaLayout, EveryElementOfAnOperandHasOneLane) {
  std::set<std::pair<int, int>> a, b, c;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const MatrixPosition at = MmaLayout::a(lane, i), number = MmaLayout::c(lane, i);
      EXPECT_TRUE(a.insert({at.row, at.col}).second && a.insert({at.row, at.col + 1}).second);
      EXPECT_TRUE(c.insert({number.row, number.col}).second);
    }
    for (int i = 0; i < 2; ++i) {
      const MatrixPosition at = MmaLayout::b(lane, i);
      EXPECT_TRUE(b.insert({at.row, at.col}).second && b.insert({at.row + 1, at.col}).second);
    }
  }
  EXPECT_EQ(a.size(), 256u);
  EXPECT_EQ(b.size(), 128u);
  EXPECT_EQ(c.size(), 128u);
  EXPECT_EQ(*a.rbegin(), std::pair(15, 15));
  EXPECT_EQ(*b.rbegin(), std::pair(15, 7));
  EXPECT_EQ(*c.rbegin(), std::pair(15, 7));
}

/// ldmatrix returns to lane l, as word i, elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 (of column l / 4 with
/// .trans) of matrix i, whose row addresses lanes 8 i … 8 i + 7 supply.
TEST(CudaLayout, LoadedWordsAreTheOperands) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const MatrixPosition a = LoadLayout::a_or_transposed_b(8 * i + lane / 4);
      EXPECT_EQ(a.row, MmaLayout::a(lane, i).row);
      EXPECT_EQ(8 * a.col + lane % 4 * 2, MmaLayout::a(lane, i).col);
      const MatrixPosition wanted = MmaLayout::b(lane, i % 2);  // of the left tile for words 0, 1
      const MatrixPosition b = LoadLayout::b(8 * i + lane / 4);
      EXPECT_EQ(b.row, wanted.col + i / 2 * 8);
      EXPECT_EQ(8 * b.col + lane % 4 * 2, wanted.row);
      const MatrixPosition transposed = LoadLayout::a_or_transposed_b(8 * i + lane % 4 * 2);
      EXPECT_EQ(transposed.row, wanted.row);
      EXPECT_EQ(8 * transposed.col + lane / 4, wanted.col + i / 2 * 8);
    }
  }
}

/// The accumulators of two adjacent tiles, packed word by word, have the layout of an operand A.
TEST(CudaLayout, AccumulatorsAreTheNextProductsOperand) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const MatrixPosition from = MmaLayout::c(lane, i % 2 * 2), to = MmaLayout::a(lane, i);
      EXPECT_EQ(from.row, to.row);
      EXPECT_EQ(from.col + i / 2 * 8, to.col);
    }
  }
}

template <int dim>
void check_swizzle() {
  using Tile = SwizzledTile<dim>;
  constexpr int rows = 64;
  std::set<int> offsets;
  for (int row = 0; row < rows; ++row) {
    for (int chunk = 0; chunk < Tile::chunks; ++chunk) {
      const int offset = Tile::offset(row, chunk);
      EXPECT_TRUE(offset % 16 == 0 && offset >= 0 && offset < Tile::bytes(rows) && offsets.insert(offset).second);
      const typename Tile::Walk walk(MatrixPosition{row % 16, chunk % 2});
      EXPECT_EQ(walk.offset(row / 16 * 16, chunk / 2 * 2), offset);
    }
  }
  for (int row = 0; row < rows; row += 8) {  // the chunks of a column in eight rows use each of the 32 banks once
    for (int chunk = 0; chunk < Tile::chunks; ++chunk) {
      std::set<int> banks;
      for (int r = row; r < row + 8; ++r) banks.insert(Tile::offset(r, chunk) % 128);
      EXPECT_EQ(banks.size(), 8u) << "dim " << dim << ", row " << row << ", chunk " << chunk;
    }
  }
}

TEST(CudaLayout, SwizzledTilesHaveNoBankConflicts) {
  check_swizzle<16>();
  check_swizzle<32>();
  check_swizzle<48>();
  check_swizzle<64>();
  check_swizzle<96>();
  check_swizzle<128>();
  check_swizzle<256>();
}

TEST(CudaLayout, BlocksVisitEveryTileOnceWithTheLongestFirst) {
  for (const std::int64_t heads : {1, 2, 7, 16}) {
    for (const std::int64_t tiles : {1, 3, 8}) {
      for (const std::int64_t section : {1, 2, 5, 100}) {
        for (const bool last_first : {false, true}) {
          const BlockOrder order{heads, tiles, section, last_first};
          std::set<std::pair<int, int>> seen;
          BlockOrder::Block before{0, last_first ? static_cast<int>(tiles) - 1 : 0};
          for (std::int64_t i = 0; i < order.blocks(); ++i) {
            const BlockOrder::Block at = order.at(i);
            EXPECT_TRUE(at.head >= 0 && at.head < heads && at.tile >= 0 && at.tile < tiles);
            EXPECT_TRUE(seen.insert({at.head, at.tile}).second);
            if (at.head / section == before.head / section) {
              EXPECT_TRUE(last_first ? at.tile <= before.tile : at.tile >= before.tile);
            } else {
              EXPECT_EQ(at.head / section, before.head / section + 1);
            }
            before = at;
          }
          EXPECT_EQ(order.blocks(), heads * tiles);
        }
      }
    }
  }
}

TEST(CudaLayout, TilesCoverExactlyTheKeysThatAreSeen) {
  for (int queries = 1; queries < 20; ++queries) {
    for (int keys = queries; keys < 40; ++keys) {
      const CausalOrder order{queries, keys, nullptr};
      EXPECT_EQ(order.seen(queries - 1), keys);
      for (int first = 0; first < queries; first += 4) {
        const int last = std::min(first + 4, queries) - 1;
        EXPECT_GE(order.end_tile(first, 4, 8) * 8, order.seen(last));
        EXPECT_LT((order.end_tile(first, 4, 8) - 1) * 8, order.seen(last));
      }
      for (int key = 0; key < keys; ++key) {
        const int query = order.first_query(key);
        EXPECT_TRUE(query < queries && order.seen(query) > key && (query == 0 || order.seen(query - 1) <= key));
        EXPECT_EQ(order.crosses(query, key + 1), false);
      }
    }
  }
}

/// Compares with the definition: the query at position p sees keys from max(its document, p − window + 1) on.
TEST(CudaLayout, WindowsLimitKeysAndQueries) {
  for (int queries = 1; queries < 12; ++queries) {
    for (int keys = queries; keys < 20; ++keys) {
      for (int window = 1; window < keys; ++window) {
        for (const int document : {0, 2}) {  // begins at this key, or at the query's own position if that is earlier
          std::vector<std::int32_t> first_keys;
          for (int query = 0; query < queries; ++query) first_keys.push_back(std::min(document, keys - queries));
          const CausalOrder order{queries, keys, document > 0 ? first_keys.data() : nullptr, window};
          const auto begin = [&](int query) {
            return std::max(document > 0 ? first_keys.front() : 0, keys - queries + query - window + 1);
          };
          for (int query = 0; query < queries; ++query) EXPECT_EQ(order.first_key(query), begin(query));
          EXPECT_EQ(order.first_key(queries + 5), begin(queries - 1)) << "padding of the last tile";
          for (int key = 0; key < keys + 8; ++key) {
            int end = 0;
            while (end < queries && begin(end) <= key) ++end;
            EXPECT_EQ(order.end_query(key), end)
                << queries << " of " << keys << ", window " << window << ", key " << key;
          }
        }
      }
    }
  }
}

TEST(CudaLayout, QueriesOfAKeyEndWithItsDocument) {
  const std::vector<std::int32_t> first_keys{0, 0, 0, 3, 4, 4, 4, 4, 8, 8};
  const CausalOrder order{10, 10, first_keys.data()};
  for (int key = 0; key < 10; ++key) {
    int end = 0;
    while (end < 10 && first_keys[static_cast<std::size_t>(end)] <= key) ++end;
    EXPECT_EQ(order.end_query(key), end) << key;
    for (int query = 0; query < 10; ++query) {
      EXPECT_EQ(order.hides(query + 1, key), first_keys[static_cast<std::size_t>(query)] > key);
    }
  }
  EXPECT_EQ(order.end_query(200), 10);  // key 200 is padding of the last tile
  EXPECT_EQ(order.first_tile(4, 4), 1);
  EXPECT_EQ(order.first_tile(8, 4), 2);
  EXPECT_EQ(order.first_key(12), 8);  // row 12 is padding of the last tile
}

}  // namespace
}  // namespace lyceum::cuda
