#include "autograd/key_value_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "autograd/attention.h"
#include "core/error.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

/// Keys with two columns and values with three, added by two calls.
TEST(KeyValueCache, KeepsKeysAndValuesOfTheirOwnWidths) {
  const Stream stream = CpuStream(1);
  std::vector<double> keys(10), values(15);
  std::iota(keys.begin(), keys.end(), 1);
  std::iota(values.begin(), values.end(), 100);
  KeyValueCache cache{.capacity = 5};
  std::int64_t first = 0;
  for (const std::int64_t count : {2, 3}) {
    Matrix<double> k{keys.data() + 2 * first, count, 2}, v{values.data() + 3 * first, count, 3};
    const auto joined = continue_from(stream, cache, k, v);
    EXPECT_FALSE(joined[0].defined() || joined[1].defined()) << "the views are of the cache";
    first += count;
    EXPECT_EQ(cache.length, first);
    ASSERT_EQ(k.rows, first);
    ASSERT_EQ(v.rows, first);
    for (std::int64_t row = 0; row < first; ++row) {
      EXPECT_TRUE(std::equal(k.row(row), k.row(row) + 2, keys.data() + 2 * row));
      EXPECT_TRUE(std::equal(v.row(row), v.row(row) + 3, values.data() + 3 * row));
    }
  }
  Matrix<double> k{keys.data(), 1, 2}, v{values.data(), 1, 3};
  EXPECT_THROW((void)continue_from(stream, cache, k, v), Error) << "it is full";
}

/// Positions come in pieces of all lengths, to windows of all lengths. The key of position p is p, its value 100 + p.
TEST(KeyValueCache, KeepsAWindowInARingBuffer) {
  const Stream stream = CpuStream(1);
  constexpr std::int64_t length = 17;
  std::vector<double> keys(length), values(length);
  std::iota(keys.begin(), keys.end(), 0);
  std::iota(values.begin(), values.end(), 100);
  for (std::int64_t window = 1; window <= length + 2; ++window) {
    for (const std::vector<std::int64_t>& pieces :
         {std::vector<std::int64_t>{17}, {1, 1, 1, 1, 1, 1, 1, 1, 9}, {3, 1, 5, 2, 6}, {8, 1, 1, 7}}) {
      KeyValueCache cache{.capacity = length, .window = window};
      EXPECT_EQ(cache.rows(), std::min(window, length));
      std::int64_t first = 0;
      for (const std::int64_t count : pieces) {
        Matrix<double> k{keys.data() + first, count, 1}, v{values.data() + first, count, 1};
        const auto joined = continue_from(stream, cache, k, v);
        const std::int64_t end = first + count, needed = std::min(end, count + window - 1);
        EXPECT_EQ(cache.length, end);
        EXPECT_EQ(cache.keys.shape(), (Shape{cache.rows(), 1}));
        ASSERT_EQ(k.rows, v.rows);
        ASSERT_GE(k.rows, needed) << "all that the new positions see";
        std::vector<double> seen(k.data, k.data + k.rows), seen_values(v.data, v.data + v.rows);
        if (count == 1) {
          std::ranges::sort(seen);
          std::ranges::sort(seen_values);
          EXPECT_EQ(k.rows, needed) << "and no others, since the order may be that of the buffer";
        }
        for (std::int64_t r = 0; r < k.rows; ++r) {
          const auto position = static_cast<double>(end - k.rows + r);
          EXPECT_EQ(seen[static_cast<std::size_t>(r)], position) << "window " << window << ", to position " << end;
          EXPECT_EQ(seen_values[static_cast<std::size_t>(r)], 100 + position);
        }
        first = end;
      }
    }
  }
}

TEST(Attention, RefusesACacheOfAnotherWindow) {
  const Stream stream = CpuStream(1);
  const Tensor table = Tensor::zeros(stream, DType::f64, {2, 4}), qkv = Tensor::zeros(stream, DType::f64, {2, 12});
  KeyValueCache cache{.capacity = 8, .window = 3};
  const RotaryAttention attention{
      .seq_len = 2, .heads = 1, .kv_heads = 1, .head_dim = 4, .rope_table = table, .cache = &cache, .window = 2};
  RotaryAttention::Saved saved;
  EXPECT_THROW(attention.forward(stream, saved, qkv), Error);
}

}  // namespace
}  // namespace lyceum
