#include "kernels/cpu/matmul_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/native_bf16.h"

namespace lyceum {
namespace {

/// A product that was dropped is compiled again.
TEST(MatmulCache, ManyShapesGiveTheRightProducts) {
  if (!can_use_native_bf16()) GTEST_SKIP() << "no AVX-512: oneDNN has no bf16 products";
  constexpr std::int64_t shapes = most_compiled_products + 40, rows = 3, cols = 5;
  const CpuStream stream(1);
  MatmulCache cache;
  const std::vector<bfloat16> a(static_cast<std::size_t>(rows * shapes), bfloat16(1.0f)),
      b(static_cast<std::size_t>(shapes * cols), bfloat16(2.0f));
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t k = 1; k <= shapes; k += round == 0 ? 1 : 50) {
      std::vector<float> c(static_cast<std::size_t>(rows * cols), -1.0f);
      cache.execute(stream,
                    Gemm<bfloat16, float>{.a = Matrix<const bfloat16>(a.data(), rows, k),
                                          .b = Matrix<const bfloat16>(b.data(), k, cols),
                                          .c = Matrix<float>(c.data(), rows, cols)},
                    0);
      for (const float value : c) ASSERT_EQ(value, static_cast<float>(2 * k));
    }
  }
}

}  // namespace
}  // namespace lyceum
