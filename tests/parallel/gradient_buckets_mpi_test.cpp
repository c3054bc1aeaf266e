#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/random.h"
#include "parallel/data/gradient_buckets.h"

namespace lyceum {
namespace {

const std::vector<std::int64_t> sizes = {1, 70001, 0, 5, 300007, 4096, 33};

/// Small whole numbers: their sum is exact in any order.
double gradient(int rank, int step, std::size_t unit, std::int64_t i) {
  return static_cast<double>((i * 7 + static_cast<std::int64_t>(unit) * 31 + rank * 1009 + step * 101) % 997 - 498);
}

std::vector<Tensor> make_gradients(DType type) {
  std::vector<Tensor> gradients;
  for (const std::int64_t size : sizes) gradients.push_back(Tensor::zeros(CpuStream(1), type, {size}));
  return gradients;
}

template <class T>
void fill(const Tensor& values, int rank, int step, std::size_t unit) {
  for (std::int64_t i = 0; i < values.size(); ++i) {
    values.data<T>()[i] = static_cast<T>(gradient(rank, step, unit, i));
  }
}

template <class T>
void expect_sums(const std::vector<Tensor>& gradients, int ranks, int step) {
  for (std::size_t unit = 0; unit < gradients.size(); ++unit) {
    for (std::int64_t i = 0; i < gradients[unit].size(); ++i) {
      double sum = 0;
      for (int r = 0; r < ranks; ++r) sum += gradient(r, step, unit, i);
      ASSERT_EQ(gradients[unit].data<T>()[i], sum) << "unit " << unit << " [" << i << "], step " << step;
    }
  }
}

/// Another order in every step and on every rank.
std::vector<std::size_t> scrambled(int rank, int step) {
  const Permutation permutation(5, std::to_string(rank) + "/" + std::to_string(step), sizes.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sizes.size(); ++i) order.push_back(permutation(i));
  return order;
}

template <class T>
void sum_in_scrambled_order(std::size_t bucket_bytes) {
  const ProcessGroup world = ProcessGroup::world(60);
  const std::vector<Tensor> gradients = make_gradients(dtype_of<T>);
  GradientBuckets buckets(gradients, world, bucket_bytes);
  for (int step = 0; step < 3; ++step) {
    for (const std::size_t unit : scrambled(world.rank(), step)) {
      fill<T>(gradients[unit], world.rank(), step, unit);
      buckets.ready(unit);
      for (int i = 0; i < world.rank(); ++i) buckets.progress();
    }
    buckets.finish();
    expect_sums<T>(gradients, world.size(), step);
  }
}

TEST(GradientBucketsTest, SumsEveryUnitWhateverTheOrder) {
  sum_in_scrambled_order<float>(std::size_t{1} << 30);  // a bucket a unit
  sum_in_scrambled_order<float>(40000);                 // several buckets a unit, more than may be under way
  sum_in_scrambled_order<double>(100003);
}

TEST(GradientBucketsTest, OtherTrafficOfTheGroupMayRunBetween) {
  const ProcessGroup world = ProcessGroup::world(60);
  const std::vector<Tensor> gradients = make_gradients(DType::f32);
  GradientBuckets buckets(gradients, world, 50000);
  for (const std::size_t unit : scrambled(world.rank(), 0)) {
    fill<float>(gradients[unit], world.rank(), 0, unit);
    buckets.ready(unit);
    std::vector<std::int64_t> one{1};
    world.all_reduce(one);
    ASSERT_EQ(one[0], world.size());
  }
  buckets.finish();
  expect_sums<float>(gradients, world.size(), 0);
  const std::int64_t values = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  EXPECT_EQ(buckets.bytes_summed(), world.size() == 1 ? 0 : 4 * values);
}

TEST(GradientBucketsTest, NotANumberReachesEveryRank) {
  const ProcessGroup world = ProcessGroup::world(60);
  const Tensor values = Tensor::zeros(CpuStream(1), DType::f32, {1000});
  if (world.rank() == world.size() - 1) values.data<float>()[17] = std::numeric_limits<float>::quiet_NaN();
  GradientBuckets buckets({values}, world, 1024);
  buckets.ready(0);
  buckets.finish();
  for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(std::isnan(values.data<float>()[i]), i == 17);
}

void expect_error(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

TEST(GradientBucketsTest, EveryUnitIsReadyExactlyOnceAStep) {
  const ProcessGroup world = ProcessGroup::world(60);
  GradientBuckets buckets(make_gradients(DType::f32), world, 1 << 20);
  for (const std::size_t unit : {6, 5, 3, 2, 1, 0}) buckets.ready(unit);
  expect_error([&] { buckets.ready(3); }, "unit 3 became ready a second time");
  expect_error([&] { buckets.ready(7); }, "there are 7 units");
  expect_error([&] { buckets.finish(); }, "unit 4 of 7 never became ready");
  buckets.ready(4);
  buckets.finish();
  expect_error([&] { buckets.finish(); }, "unit 0 of 7 never became ready");
}

TEST(GradientBucketsTest, WhatCannotBeSummedIsRefused) {
  const ProcessGroup world = ProcessGroup::world(60);
  const Tensor whole = Tensor::zeros(CpuStream(1), DType::i64, {4}),
               real = Tensor::zeros(CpuStream(1), DType::f64, {4});
  expect_error([&] { GradientBuckets({real, whole}, world, 64); }, "unit 1 are i64");
  expect_error([&] { GradientBuckets({Tensor()}, world, 64); }, "unit 0 are undefined");
  expect_error([&] { GradientBuckets({real}, world, 4); }, "a bucket of 4 B holds no f64");
  GradientBuckets nothing({}, world, 64);
  nothing.finish();
}

TEST(GradientBucketsTest, AGroupOfOneSendsNothing) {
  const ProcessGroup self = ProcessGroup::self();
  const std::vector<Tensor> gradients = make_gradients(DType::f32);
  GradientBuckets buckets(gradients, self, 1024);
  for (std::size_t unit = 0; unit < sizes.size(); ++unit) {
    fill<float>(gradients[unit], 0, 0, unit);
    buckets.ready(unit);
  }
  buckets.finish();
  expect_sums<float>(gradients, 1, 0);
  EXPECT_EQ(buckets.bytes_summed(), 0);
}

}  // namespace
}  // namespace lyceum
