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
    continue_from(stream, cache, k, v);
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
  EXPECT_THROW(continue_from(stream, cache, k, v), Error) << "it is full";
}

TEST(Attention, RefusesValuesOfAnotherWidthThanKeys) {
  const Stream stream = CpuStream(1);
  const Tensor table = Tensor::zeros(stream, DType::f64, {2, 4}), qkv = Tensor::zeros(stream, DType::f64, {2, 10});
  const RotaryAttention attention{
      .seq_len = 2, .heads = 1, .kv_heads = 1, .head_dim = 4, .value_dim = 2, .rope_table = table};
  RotaryAttention::Saved saved;
  EXPECT_THROW(attention.forward(stream, saved, qkv), Error);
}

}  // namespace
}  // namespace lyceum
