#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lyceum {
namespace {

TEST(DType, SizesNamesAndAccumulators) {
  EXPECT_EQ(size_of(DType::f32), sizeof(float));
  EXPECT_EQ(size_of(DType::bf16), sizeof(bfloat16));
  EXPECT_EQ(size_of(DType::f64), sizeof(double));
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::i64), 8u);
  EXPECT_EQ(size_of(DType::u8), 1u);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(dtype_of<const bfloat16>, DType::bf16);
  EXPECT_EQ(accumulator_of(DType::bf16), DType::f32);
  EXPECT_EQ(accumulator_of(DType::f64), DType::f64);
  EXPECT_TRUE((std::is_same_v<Accumulator<const bfloat16>, float>));
  EXPECT_TRUE((std::is_same_v<Accumulator<double>, double>));
}

TEST(DType, DispatchesOnFloatingTypesOnly) {
  const auto size = []<class T>() { return sizeof(T); };
  EXPECT_EQ(dispatch_float(DType::f32, size), 4u);
  EXPECT_EQ(dispatch_float(DType::bf16, size), 2u);
  EXPECT_EQ(dispatch_float(DType::f64, size), 8u);
  EXPECT_THROW(dispatch_float(DType::i32, size), Error);
}

TEST(Bfloat16, RoundsToNearestEven) {
  const auto rounded = [](float value) { return static_cast<float>(bfloat16(value)); };
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1 + 0x1p-8f), 1.0f);  // tie: the even neighbour is below
  EXPECT_EQ(rounded(1 + 0x1p-8f + 0x1p-20f), 1 + 0x1p-7f);
  EXPECT_EQ(rounded(1 + 3 * 0x1p-8f), 1 + 0x1p-6f);  // tie: the even neighbour is above
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded(-std::numeric_limits<float>::infinity()), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
  EXPECT_EQ(bfloat16().bits, 0);
}

TEST(Bfloat16, NanStaysNanWhateverItsBits) {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xffffffffu, 0xff800001u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(bits)))));
  }
}

}  // namespace
}  // namespace lyceum
