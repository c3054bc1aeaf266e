#include "core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "core/allocator.h"

namespace lyceum {
namespace {

const Stream stream = CpuStream(1);

Tensor counting(const Shape& shape) {
  Tensor tensor = Tensor::empty(stream, DType::f32, shape);
  const auto values = tensor.span<float>();
  std::iota(values.begin(), values.end(), 0.0f);
  return tensor;
}

TEST(Shape, SizesTextAndLimits) {
  EXPECT_EQ((Shape{2, 3, 4}).size(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).size(), 0);
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ((Shape{2, 3}).text(), "[2, 3]");
  EXPECT_EQ(Shape().text(), "[]");
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{2, -1}), Error);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW((Shape{huge, huge}).size(), Error);
  EXPECT_THROW(Tensor::empty(stream, DType::f32, {huge, huge}), Error);
}

TEST(Tensor, UndefinedHoldsNothing) {
  const Tensor tensor;
  EXPECT_FALSE(tensor.defined());
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_EQ(tensor.bytes(), 0u);
  EXPECT_TRUE(tensor.span<float>().empty());
  EXPECT_EQ(tensor.matrix<float>().rows, 0);
  EXPECT_THROW(tensor.view(0, {1}), Error);
  EXPECT_THROW(tensor.slice(0, 1), Error);
}

TEST(Tensor, ZerosAndBytes) {
  const Tensor tensor = Tensor::zeros(stream, DType::f64, {3, 5});
  EXPECT_EQ(tensor.bytes(), 120u);
  for (const double value : tensor.span<double>()) EXPECT_EQ(value, 0);
  EXPECT_EQ(Tensor::zeros(stream, DType::u8, {0, 5}).bytes(), 0u);
}

TEST(Tensor, IsReadOnlyAsItsOwnType) {
  const Tensor tensor = counting({2});
  EXPECT_THROW(tensor.data<double>(), Error);
  EXPECT_THROW(tensor.span<std::int32_t>(), Error);
  EXPECT_EQ(tensor.data<const float>()[1], 1);
}

TEST(Tensor, MatrixHasAllLeadingDimensionsAsRows) {
  const Matrix<float> matrix = counting({2, 3, 4}).matrix<float>();
  EXPECT_EQ(matrix.rows, 6);
  EXPECT_EQ(matrix.cols, 4);
  EXPECT_TRUE(matrix.contiguous());
  EXPECT_EQ(counting({}).matrix<float>().size(), 1);
  EXPECT_EQ(counting({3, 0}).matrix<float>().size(), 0);
}

TEST(Matrix, RowsAndColumnsOfAView) {
  const Tensor tensor = counting({4, 6});
  const Matrix<float> part = tensor.matrix<float>().rows_from(1, 2).cols_from(2, 3);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 3);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(part.row(1)[2], 16);
  const Matrix<const float> constant = part;
  EXPECT_EQ(constant.row(0)[0], 8);
}

TEST(Tensor, ViewsShareMemory) {
  const Tensor tensor = counting({4, 6});
  const Tensor slice = tensor.slice(1, 2), flat = tensor.reshaped({24}), view = tensor.view(13, {2, 2});
  EXPECT_EQ(slice.shape(), (Shape{2, 6}));
  EXPECT_EQ(slice.data<float>()[0], 6);
  EXPECT_EQ(view.data<float>()[3], 16);
  slice.data<float>()[0] = -1;
  EXPECT_EQ(flat.data<float>()[6], -1);
  EXPECT_EQ(view.slice(1, 1).data<float>()[0], 15);
  EXPECT_EQ(tensor.slice(4, 0).size(), 0);
  EXPECT_EQ(tensor.view(24, {0}).size(), 0);
  EXPECT_THROW(tensor.slice(3, 2), Error);
  EXPECT_THROW(tensor.slice(-1, 2), Error);
  EXPECT_THROW(tensor.slice(1, -1), Error);
  EXPECT_THROW(tensor.slice(1, std::numeric_limits<std::int64_t>::max()), Error);
  EXPECT_THROW(tensor.view(21, {2, 2}), Error);
  EXPECT_THROW(tensor.view(std::numeric_limits<std::int64_t>::max(), {2}), Error);
  EXPECT_THROW(tensor.reshaped({5, 5}), Error);
  EXPECT_THROW(counting({}).slice(0, 1), Error);
}

TEST(Tensor, ErrorsNameTheShapes) {
  try {
    counting({4, 6}).reshaped({5, 5});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("[4, 6]"), testing::HasSubstr("[5, 5]")));
  }
}

TEST(Tensor, KnowsWhetherItIsShared) {
  Tensor tensor = counting({4});
  EXPECT_TRUE(tensor.unique());
  {
    const Tensor part = tensor.slice(0, 1);
    EXPECT_FALSE(tensor.unique());
    EXPECT_FALSE(part.unique());
  }
  EXPECT_TRUE(tensor.unique());
}

TEST(Tensor, MemoryIsCountedUntilTheLastViewGoes) {
  const auto memory = Allocator::create();
  const Stream own = CpuStream(1, memory);
  Tensor view;
  {
    const Tensor tensor = Tensor::empty(own, DType::bf16, {10, 10}, MemoryKind::gradients);
    view = tensor.slice(3, 1);
  }
  EXPECT_EQ(memory->use().in_use[static_cast<std::size_t>(MemoryKind::gradients)], 200u);
  view = Tensor();
  EXPECT_EQ(memory->use().total, 0u);
}

TEST(Tensor, GivesItsMemoryUpAndTakesOtherBack) {
  const auto memory = Allocator::create();
  const Stream own = CpuStream(1, memory);
  const Tensor tensor = Tensor::empty(own, DType::f32, {4, 3}), copy = tensor, view = tensor.slice(1, 2);
  EXPECT_THROW(view.free_memory(), Error);  // only a part of its memory
  EXPECT_THROW(tensor.adopt_memory(copy), Error);
  tensor.free_memory();
  EXPECT_EQ(memory->use().total, 0u);
  EXPECT_TRUE(tensor.defined());
  EXPECT_THROW(copy.data<float>(), Error);
  EXPECT_THROW(view.raw(), Error);
  EXPECT_THROW(tensor.free_memory(), Error);
  EXPECT_THROW(tensor.adopt_memory(Tensor::empty(own, DType::f32, {3, 4})), Error);
  EXPECT_THROW(tensor.adopt_memory(Tensor::empty(own, DType::i32, {4, 3})), Error);
  const Tensor other = Tensor::zeros(own, DType::f32, {4, 3});
  other.data<float>()[3] = 7;
  tensor.adopt_memory(other);
  EXPECT_EQ(copy.data<float>()[3], 7);
  EXPECT_EQ(view.data<float>()[0], 7);
  EXPECT_EQ(memory->use().total, 48u);
}

struct Kept {
  int calls = 0;
};

TEST(CpuStream, CopiesShareWhatKernelsKeep) {
  const CpuStream one(2), copy = one, other(1);
  ++one.keep<Kept>().calls;
  EXPECT_EQ(copy.keep<Kept>().calls, 1);
  EXPECT_EQ(other.keep<Kept>().calls, 0);
  EXPECT_EQ(one.threads(), 2);
  EXPECT_GE(CpuStream().threads(), 1);
  EXPECT_THROW(CpuStream(-1), Error);
}

}  // namespace
}  // namespace lyceum
