#include "kernels/norms.h"

#include <numeric>

#include "core/device_table.h"
#include "support/grid.h"
#include "support/launch_on.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

template <class A>
class SquaresOfTensorsTest : public testing::Test {};
using Accumulators = testing::Types<float, double>;
TYPED_TEST_SUITE(SquaresOfTensorsTest, Accumulators);

/// Runs SquaresOfTensors on tensors of these sizes, which follow one another in `x`. Returns the sums of all blocks in
/// order; those of tensor `without` are not computed and remain NaN.
template <class A>
std::vector<double> sums_of_tensors(const Grid<A>& x, const std::vector<std::int64_t>& sizes, std::size_t without,
                                    const Stream& stream = tested_stream()) {
  const Tensor memory = table_of(stream, x.values);
  std::vector<TensorRow<A>> rows;
  std::vector<std::int64_t> offsets;
  std::int64_t blocks = 0, at = 0;
  for (const std::int64_t size : sizes) {
    rows.push_back({rows_of<A>(memory).data() + at, size, blocks});
    offsets.push_back(offsets.size() == without ? -1 : blocks);
    at += size;
    blocks += flat_blocks_of(size);
  }
  std::vector<double> sums(static_cast<std::size_t>(blocks), poison<double>());
  const Tensor row_table = table_of(stream, rows), offset_table = table_of(stream, offsets),
               sum_table = table_of(stream, sums);
  launch(stream, SquaresOfTensors<A>{.tensors = rows_of<TensorRow<A>>(row_table),
                                     .blocks = blocks,
                                     .offsets = rows_of<std::int64_t>(offset_table),
                                     .sums = {reinterpret_cast<double*>(sum_table.raw()), sums.size()}});
  copy_to_host(stream, sums.data(), sum_table.raw(), sum_table.bytes());
  return sums;
}

TYPED_TEST(SquaresOfTensorsTest, OfManyTensorsAtOnce) {
  const std::vector<std::int64_t> sizes{0, 1, 2048, 0, 1025, 7, 300000, 0};
  const std::size_t without = 4;
  const auto x = Grid<TypeParam>::random(1, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), "x", 0, 1e15);
  const std::vector<double> sums = sums_of_tensors(x, sizes, without);
  std::size_t at = 0, sum = 0;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    for (std::int64_t first = 0; first < sizes[t]; first += flat_block, ++sum) {
      long double expected = 0;
      for (std::int64_t i = first; i < std::min(sizes[t], first + flat_block); ++i, ++at) {
        expected += static_cast<long double>(x.values[at]) * static_cast<long double>(x.values[at]);
      }
      if (t == without) {
        EXPECT_TRUE(is_nan(sums[sum]));
      } else {
        EXPECT_TRUE(std::abs(sums[sum] - static_cast<double>(expected)) <= 1e-13 * static_cast<double>(expected));
      }
    }
  }
  EXPECT_EQ(sum, sums.size());
}

TYPED_TEST(SquaresOfTensorsTest, SameBitsOnAnyNumberOfThreads) {
  const auto x = Grid<TypeParam>::random(1, 200000, "x", 0, 1e20);
  const std::vector<std::int64_t> sizes{7, 100000, 0, 99993};
  const std::vector<double> one = sums_of_tensors(x, sizes, 9, CpuStream(1));
  for (const int threads : {2, 3}) EXPECT_EQ(one, sums_of_tensors(x, sizes, 9, CpuStream(threads)));
}

TYPED_TEST(SquaresOfTensorsTest, InfinityShowsInItsBlockAlone) {
  for (const std::int64_t place : {0, 5000, 9999}) {
    auto x = Grid<TypeParam>::random(1, 10000, "x");
    x(0, place) = -std::numeric_limits<TypeParam>::infinity();
    const std::vector<double> sums = sums_of_tensors(x, {10000}, 9);
    for (std::int64_t b = 0; b < std::ssize(sums); ++b) {
      EXPECT_EQ(std::isinf(sums[static_cast<std::size_t>(b)]), b == place / flat_block);
    }
  }
}

TYPED_TEST(SquaresOfTensorsTest, CutsAtBlocksChangeNoBit) {
  auto x = Grid<TypeParam>::random(1, 10000, "x");
  const std::vector<double> whole = sums_of_tensors(x, {10000}, 9);
  EXPECT_EQ(whole, sums_of_tensors(x, {0, 3072, 1024, 0, 5904}, 9));
  x(0, 5000) = poison<TypeParam>();
  const std::vector<double> nan = sums_of_tensors(x, {10000}, 9);
  for (std::size_t b = 0; b < nan.size(); ++b) EXPECT_EQ(is_nan(nan[b]), b == 4);
  // The sums do not depend on the alignment: the same numbers, one element later in memory.
  auto moved = Grid<TypeParam>::random(1, 10001, "other");
  std::copy(x.values.begin(), x.values.end(), moved.values.begin() + 1);
  const std::vector<double> later = sums_of_tensors(moved, {1, 10000}, 9);
  for (std::size_t b = 0; b < nan.size(); ++b) EXPECT_TRUE(b == 4 || later[b + 1] == nan[b]);
}

TEST(SumRanges, AddsUpEachOutputsRanges) {
  const auto x = Grid<double>::random(1, 5000, "x");
  const std::vector<SumRange> ranges{{0, 10}, {100, 0}, {7, 3000}, {4999, 1}, {3, 1}};
  const std::vector<std::int64_t> begin{0, 1, 1, 3, 5};
  std::vector<double> y(4, poison<double>());
  launch_on(1, SumRanges{.x = x.span(), .ranges = ranges, .begin = begin, .y = y});
  for (std::size_t o = 0; o < y.size(); ++o) {
    long double expected = 0;
    for (std::int64_t r = begin[o]; r < begin[o + 1]; ++r) {
      const SumRange& range = ranges[static_cast<std::size_t>(r)];
      for (std::int64_t i = range.first; i < range.first + range.count; ++i) expected += x.at(0, i);
    }
    EXPECT_TRUE(std::abs(y[o] - static_cast<double>(expected)) <= 1e-11);
  }
  EXPECT_EQ(y[1], 0);
  std::vector<double> wrong(3);
  EXPECT_THROW(launch_on(1, SumRanges{.x = x.span(), .ranges = ranges, .begin = begin, .y = wrong}), Error);
}

TEST(NormsOfLayers, AddsUpThePartsOfEachLayer) {
  constexpr std::int64_t layers = 35, columns = 2;
  auto x = Grid<double>::random(NormsOfLayers::kinds * columns, layers, "x");
  for (double& value : x.values) value *= value;
  std::vector<double> norms(columns, poison<double>());
  const auto join = [&] { launch_on(1, NormsOfLayers{.x = x.span(), .layers = layers, .norms = norms}); };
  join();
  for (std::int64_t c = 0; c < columns; ++c) {
    long double sum = 0;
    for (std::int64_t p = 0; p < NormsOfLayers::kinds; ++p) {
      for (std::int64_t l = 0; l < layers; ++l) sum += x.at(p * columns + c, l);
    }
    const auto expected = static_cast<double>(std::sqrt(sum));
    EXPECT_TRUE(std::abs(norms[static_cast<std::size_t>(c)] - expected) <= 1e-13 * expected);
  }
  std::vector<double> by_layer(static_cast<std::size_t>(columns * layers), poison<double>());
  launch_on(1, NormsOfLayers{.x = x.span(), .layers = layers, .norms = norms, .by_layer = by_layer});
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t l = 0; l < layers; ++l) {
      double sum = 0;
      for (std::int64_t p = 0; p < NormsOfLayers::kinds; ++p) sum += x.at(p * columns + c, l);
      const double expected = std::sqrt(sum);
      EXPECT_TRUE(std::abs(by_layer[static_cast<std::size_t>(c * layers + l)] - expected) <= 1e-13 * expected);
    }
  }
  x(3, 7) = poison<double>();  // belongs to the second norm
  join();
  EXPECT_FALSE(is_nan(norms[0]));
  EXPECT_TRUE(is_nan(norms[1]));
}

}  // namespace
}  // namespace lyceum
